// Writes records and reads them back while they are written, over one HTTP/2 connection. Node 18 or later, nothing else.
//
//   node records.mjs [URL [TOPIC]]                                   default: http://127.0.0.1:9701 flights
import { once } from "node:events";
import http2 from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";

const [url = "http://127.0.0.1:9701", topic = "flights"] = process.argv.slice(2);
const partition = `/v1/namespaces/default/topics/${topic}/partitions/0`;
const ATTEMPTS = 6;

/** What a broker answered instead of doing it: a problem document (RFC 9457). */
class Problem extends Error {
  constructor(headers, document) {
    super(`HTTP ${headers[":status"]} ${document.code}: ${document.detail}`);
    this.retriable = document.retriable === true;
    this.waitMs = 1000 * Number(headers["retry-after"] ?? 0);
  }
}

class Broker {
  #session;

  /** The connection; a new one where the last was closed. */
  async #connected() {
    if (!this.#session || this.#session.closed || this.#session.destroyed) {
      this.#session = http2.connect(url);
      await once(this.#session, "connect"); // raises what the session's "error" says
      this.#session.on("error", () => {}); // its requests fail of themselves
    }
    return this.#session;
  }

  get protocol() {
    return this.#session.alpnProtocol; // "h2c", over TLS "h2"
  }

  /** Starts a request; the stream to read the answer from, once it is a good one. */
  async open(method, path, { headers = {}, body } = {}) {
    const session = await this.#connected();
    const stream = session.request({ ":method": method, ":path": path, ...headers });
    stream.end(body);
    const [answered] = await once(stream, "response");
    stream.answered = answered;
    if (answered[":status"] >= 400) {
      throw new Problem(answered, JSON.parse(await text(stream)));
    }
    return stream;
  }

  close() {
    this.#session?.close();
  }
}

async function text(stream) {
  stream.setEncoding("utf8");
  let content = "";
  for await (const chunk of stream) content += chunk;
  return content;
}

async function* lines(stream) {
  stream.setEncoding("utf8");
  let rest = "";
  for await (const chunk of stream) {
    const whole = (rest + chunk).split("\n");
    rest = whole.pop();
    yield* whole;
  }
}

/** Again after problems that may pass and lost connections. A write whose answer was lost may be written twice. */
async function patiently(attempt) {
  for (let failures = 1; ; failures++) {
    try {
      return await attempt();
    } catch (error) {
      if (failures === ATTEMPTS || (error instanceof Problem && !error.retriable)) throw error;
      await sleep(Math.max(error.waitMs ?? 0, 100 * 2 ** failures));
    }
  }
}

/** {"partition", "baseOffset", "lastOffset", ...} */
function produce(broker, records) {
  const body = JSON.stringify({ records });
  const headers = { "content-type": "application/json" };
  return patiently(async () => JSON.parse(await text(await broker.open("POST", `${partition}/records`, { headers, body }))));
}

/** {"records": [...], "nextOffset", ...}: what is there already, at most `count` records. */
function fetch(broker, offset, count) {
  const path = `${partition}/records?offset=${offset}&maxRecords=${count}&valueFormat=json`;
  return patiently(async () => JSON.parse(await text(await broker.open("GET", path))));
}

/** The next `count` records from `offset` as they come. Where the stream breaks off it goes on behind the last one. */
async function* watch(broker, offset, count) {
  while (count > 0) {
    const path = `${partition}/records?watch=true&offset=${offset}&maxRecords=${count}&valueFormat=json`;
    const stream = await patiently(() => broker.open("GET", path, { headers: { accept: "application/x-ndjson" } }));
    try {
      for await (const line of lines(stream)) {
        if (line === "") continue; // a heartbeat
        const record = JSON.parse(line);
        [offset, count] = [record.offset + 1, count - 1];
        yield record;
      }
    } catch (error) {
      console.error(`the watch broke off, going on from offset ${offset}: ${error.message}`);
    }
  }
}

const flights = [1545, 1714, 1141].map((flight) => ({ key: `UA${flight}`, value: { flight }, headers: { source: "node" } }));
const broker = new Broker();
try {
  const { nextOffset } = await fetch(broker, "latest", 1);
  const watching = async () => {
    for await (const record of watch(broker, nextOffset, flights.length)) {
      console.log(`watched ${record.offset}: ${record.key} ${JSON.stringify(record.value)}`);
    }
  };
  const [{ baseOffset, lastOffset }] = await Promise.all([produce(broker, flights), watching()]);
  console.log(`wrote ${baseOffset} to ${lastOffset}`);
  const { records } = await fetch(broker, baseOffset, flights.length);
  console.log(`fetched ${records.map((record) => record.key).join(" ")}`);
  console.log(`protocol: ${broker.protocol}`);
} catch (error) {
  console.error(`${url}: ${error.message}`);
  process.exitCode = 1;
} finally {
  broker.close();
}
