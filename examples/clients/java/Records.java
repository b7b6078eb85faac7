import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Iterator;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Writes records and reads them back while they are written, over one HTTP/2 connection. Java 17 or later, nothing else.
 *
 * <pre>java Records.java [URL [TOPIC]]                               default: https://127.0.0.1:9701 flights</pre>
 *
 * Without TLS this client speaks HTTP/1.1: it knows HTTP/2 by ALPN and by Upgrade only, and brokers take no Upgrade. The
 * variable HEADRACE_CA_FILE names a PEM file of the authorities to trust, else those of the Java installation are.
 * The JDK reads no JSON; where a program needs more than a number of an answer, take the library that you have.
 */
public class Records {
    private static final int ATTEMPTS = 6;

    private final HttpClient client;
    private final String records;

    /** What a broker answered instead of doing it: a problem document (RFC 9457). */
    static class Problem extends IOException {
        private static final long serialVersionUID = 1;

        final boolean retriable;
        final long waitMs;

        Problem(HttpResponse<?> response, String document) {
            super("HTTP " + response.statusCode() + ": " + document.strip());
            retriable = Pattern.compile("\"retriable\": *true").matcher(document).find();
            waitMs = 1000 * response.headers().firstValueAsLong("retry-after").orElse(0);
        }
    }

    Records(HttpClient client, String url, String topic) {
        this.client = client;
        this.records = url + "/v1/namespaces/default/topics/" + topic + "/partitions/0/records";
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments.length > 0 ? arguments[0] : "https://127.0.0.1:9701";
        String topic = arguments.length > 1 ? arguments[1] : "flights";
        HttpClient client = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_2)
                .connectTimeout(Duration.ofSeconds(5))
                .sslContext(trusting(System.getenv("HEADRACE_CA_FILE")))
                .build();
        try {
            new Records(client, url, topic).run();
        } catch (IOException | CompletionException error) {
            System.err.println(url + ": " + error.getMessage());
            System.exit(1);
        }
    }

    private void run() throws IOException, InterruptedException {
        long end = nextOffset(read("?offset=latest"));
        CompletableFuture<Void> watched = CompletableFuture.runAsync(() -> watch(end, 3));
        HttpResponse<String> written = produce("""
                {"key": "UA1545", "value": {"flight": 1545}, "headers": {"source": "java"}}
                {"key": "UA1714", "value": {"flight": 1714}, "headers": {"source": "java"}}
                {"key": "UA1141", "value": {"flight": 1141}, "headers": {"source": "java"}}
                """);
        long base = number(written.body(), "baseOffset");
        System.out.println("wrote " + base + " to " + number(written.body(), "lastOffset"));
        watched.join();
        HttpResponse<String> fetched = read("?valueFormat=json&maxRecords=3&offset=" + base);
        System.out.print("fetched " + fetched.body());
        System.out.println("protocol: " + fetched.version());
    }

    /** A record a line; all of them are written, or none. */
    private HttpResponse<String> produce(String lines) throws IOException, InterruptedException {
        return asked(HttpRequest.newBuilder(URI.create(records))
                .header("Content-Type", "application/x-ndjson")
                .POST(BodyPublishers.ofString(lines))
                .build());
    }

    private HttpResponse<String> read(String query) throws IOException, InterruptedException {
        return asked(HttpRequest.newBuilder(URI.create(records + query)).header("Accept", "application/json").build());
    }

    /** Shows the next `count` records from `offset` as they come. Where it breaks off it goes on behind the last one. */
    private void watch(long offset, int count) {
        while (count > 0) {
            String query = "?watch=true&valueFormat=json&offset=" + offset + "&maxRecords=" + count;
            HttpRequest request = HttpRequest.newBuilder(URI.create(records + query))
                    .header("Accept", "application/x-ndjson")
                    .build();
            try (Stream<String> lines = opened(request).body()) {
                for (Iterator<String> each = lines.iterator(); each.hasNext() && count > 0; ) {
                    String line = each.next();
                    if (line.isEmpty()) {
                        continue; // a heartbeat
                    }
                    offset = number(line, "offset") + 1;
                    count--;
                    System.out.println("watched " + line);
                }
            } catch (UncheckedIOException error) {
                System.err.println("the watch broke off, going on from offset " + offset + ": " + error.getMessage());
            } catch (IOException | InterruptedException error) {
                throw new CompletionException(error);
            }
        }
    }

    private HttpResponse<String> asked(HttpRequest request) throws IOException, InterruptedException {
        return patiently(() -> checked(client.send(request, BodyHandlers.ofString())));
    }

    private HttpResponse<Stream<String>> opened(HttpRequest request) throws IOException, InterruptedException {
        return patiently(() -> checked(client.send(request, BodyHandlers.ofLines())));
    }

    private static <T> HttpResponse<T> checked(HttpResponse<T> response) throws Problem {
        if (response.statusCode() < 400) {
            return response;
        }
        if (response.body() instanceof Stream<?> lines) {
            throw new Problem(response, lines.map(String::valueOf).collect(Collectors.joining()));
        }
        throw new Problem(response, response.body().toString());
    }

    interface Attempt<T> {
        T get() throws IOException, InterruptedException;
    }

    /** Again after problems that may pass and lost connections. A write whose answer was lost may be written twice. */
    private static <T> T patiently(Attempt<T> attempt) throws IOException, InterruptedException {
        for (int failures = 1; ; failures++) {
            long waitMs = 100L << failures;
            try {
                return attempt.get();
            } catch (Problem problem) {
                if (!problem.retriable || failures == ATTEMPTS) {
                    throw problem;
                }
                waitMs = Math.max(waitMs, problem.waitMs);
            } catch (IOException error) {
                if (failures == ATTEMPTS) {
                    throw error;
                }
            }
            Thread.sleep(waitMs);
        }
    }

    private static long nextOffset(HttpResponse<?> response) {
        return response.headers().firstValueAsLong("headrace-next-offset").orElseThrow();
    }

    private static long number(String json, String name) throws IOException {
        Matcher found = Pattern.compile("\"" + name + "\": *(\\d+)").matcher(json);
        if (!found.find()) {
            throw new IOException("no " + name + " in " + json);
        }
        return Long.parseLong(found.group(1));
    }

    /** A context that trusts the certificates of a PEM file; null: those that Java trusts anyway. */
    private static SSLContext trusting(String file) throws IOException, GeneralSecurityException {
        if (file == null) {
            return SSLContext.getDefault();
        }
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream pem = Files.newInputStream(Path.of(file))) {
            int number = 0;
            for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(pem)) {
                trusted.setCertificateEntry("authority-" + number++, each);
            }
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }
}
