import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java producer where each record is waited for. Arguments: topic, file of payloads, records, producers, and the
 * producer's properties as name=value. As many records go before those that are counted: the JVM compiles meanwhile.
 */
public final class Waiting {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[0];
        byte[] value = Files.readAllLines(Path.of(arguments[1])).get(0).getBytes();
        int producers = Integer.parseInt(arguments[3]);
        int each = Integer.parseInt(arguments[2]) / producers;
        List<KafkaProducer<byte[], byte[]>> all = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            all.add(new KafkaProducer<>(properties(arguments), new ByteArraySerializer(), new ByteArraySerializer()));
        }
        send(all, topic, value, each);
        long started = System.nanoTime();
        long[] times = send(all, topic, value, each);
        double seconds = (System.nanoTime() - started) / 1e9;
        for (KafkaProducer<byte[], byte[]> producer : all) {
            producer.close();
        }
        Arrays.sort(times);
        System.out.printf(
                Locale.ROOT,
                "{\"records\": %d, \"seconds\": %f, \"p50_ms\": %f, \"p99_ms\": %f}%n",
                times.length, seconds, times[times.length / 2] / 1e6, times[times.length * 99 / 100] / 1e6);
    }

    private static Properties properties(String[] arguments) {
        Properties properties = new Properties();
        for (String setting : Arrays.asList(arguments).subList(4, arguments.length)) {
            int split = setting.indexOf('=');
            properties.put(setting.substring(0, split), setting.substring(split + 1));
        }
        return properties;
    }

    /** Each producer in a thread of its own; nanoseconds of each record. */
    private static long[] send(List<KafkaProducer<byte[], byte[]>> producers, String topic, byte[] value, int each)
            throws Exception {
        long[] times = new long[producers.size() * each];
        Exception[] failures = new Exception[producers.size()];
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < producers.size(); number++) {
            int first = number * each;
            int at = number;
            threads.add(new Thread(() -> {
                try {
                    for (int index = first; index < first + each; index++) {
                        long sent = System.nanoTime();
                        producers.get(at).send(new ProducerRecord<>(topic, value)).get();
                        times[index] = System.nanoTime() - sent;
                    }
                } catch (Exception failure) {
                    failures[at] = failure;
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        for (Exception failure : failures) {
            if (failure != null) {
                throw failure;
            }
        }
        return times;
    }
}
