"""Many runs on several processes."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.sim.plans import Plan
from tests.sim.world import FailedRunError, run

CHUNK = 10


class FailedSeedError(Exception):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seed = seed


def play_all(seeds: range, processes: int, drawn: Callable[[int], Plan] = Plan.drawn) -> Iterator[Counter[str]]:
    """Yield the counts, chunk by chunk. Raises FailedSeedError for the first that fails."""
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        playing = [pool.submit(_play, chunk, drawn) for chunk in chunks]
        try:
            for done in as_completed(playing):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _play(seeds: range, drawn: Callable[[int], Plan]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts += run(drawn(seed)).counts
        except FailedRunError as error:
            raise FailedSeedError(seed) from error
    return counts
