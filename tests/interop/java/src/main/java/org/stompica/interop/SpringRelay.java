package org.stompica.interop;

import java.util.LinkedHashMap;
import java.util.Map;

import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * A Spring application whose StompBrokerRelay uses a broker: {@code java … SpringRelay PORT SCENARIO…}. Prints
 * {@code PASS name} for each scenario; at the first failure prints the reason and exits with 1.
 */
public final class SpringRelay {

    private interface Scenario {
        void run() throws Exception;
    }

    private SpringRelay() {
    }

    public static void main(String[] args) {
        ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();
        scheduler.initialize();
        try {
            RelayApplication application = new RelayApplication(Integer.parseInt(args[0]));
            RelayScenarios relay = new RelayScenarios(application, scheduler);
            Map<String, Scenario> scenarios = new LinkedHashMap<>();
            scenarios.put("topic", relay::topic);
            scenarios.put("queue", relay::queue);
            scenarios.put("shared", relay::shared);
            scenarios.put("user", relay::user);
            for (int index = 1; index < args.length; index++) {
                scenarios.get(args[index]).run();
                System.out.println("PASS " + args[index]);
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }
}
