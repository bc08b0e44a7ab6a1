import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/**
 * The Java client's push consumer with a trivial listener and the client's own settings.
 *
 *   java -cp 'lib/*' JavaPush.java NAMESRV GROUP TOPIC RECORDS WARM_UPS
 *
 * Consumes the topic WARM_UPS times, then once more. The last line of its output is records, seconds, and seconds of
 * processor time of that, from the first message to the last.
 */
public class JavaPush {
    public static void main(String[] args) throws Exception {
        long records = Long.parseLong(args[3]);
        int warmUps = Integer.parseInt(args[4]);
        for (int i = 0; i < warmUps; i++) {
            consume(args[0], args[1] + "-warm-up-" + i, args[2], records);
        }
        System.out.println(consume(args[0], args[1], args[2], records));
        System.exit(0);
    }

    static String consume(String namesrv, String group, String topic, long records) throws Exception {
        AtomicLong count = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        long[] seen = new long[4];
        CountDownLatch over = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(group);
        consumer.setMqClientApiTimeout(20_000); // a machine may have other work
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> {
                long number = count.incrementAndGet();
                if (number == 1) {
                    seen[0] = System.nanoTime();
                    seen[1] = cpu();
                }
                bytes.addAndGet(message.getBody().length);
                if (number == records) {
                    seen[2] = System.nanoTime();
                    seen[3] = cpu();
                    over.countDown();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        over.await();
        consumer.shutdown();
        return records + " " + (seen[2] - seen[0]) / 1e9 + " " + (seen[3] - seen[1]) / 1e9;
    }

    static long cpu() {
        var system = ManagementFactory.getOperatingSystemMXBean();
        return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime();
    }
}
