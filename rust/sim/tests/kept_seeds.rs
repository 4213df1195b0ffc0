//! Seeds that have found a defect once, or have blamed the broker by mistake, find nothing now.

use stompica_sim::options::Options;
use stompica_sim::world::World;

#[test]
fn kept_seeds_find_nothing() {
    let lines = include_str!("../seeds.txt").lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let mut words = line.split_whitespace().map(str::parse);
        let (Some(Ok(seed)), Some(Ok(steps))) = (words.next(), words.next()) else {
            panic!("a seed and a number of steps are expected: {line}");
        };
        let outcome = World::new(Options::new(seed, steps)).run(|_| true);
        assert!(outcome.is_ok(), "{line}: {:?}", outcome.map_err(|failure| failure.violation));
    }
}

/// Seeds in which the simulator has blamed the broker by mistake.
const MISTAKES: [(u64, u64, &str); 34] = [
    (9_210_134, 2000, "a rogue that read much through a buffer of 64 bytes kept the broker busy"),
    (9_220_971, 2000, "a late NACK of STOMP 1.1 refused the next delivery"),
    (9_227_673, 2000, "a late NACK of STOMP 1.1 began the next delay early"),
    (9_602_050, 2000, "mail waits behind a message for a consumer whose ACK waits behind its own SEND"),
    (9_858_294, 2000, "shards divide the window in bytes of a pattern whose wildcard is not at its end"),
    (9_873_883, 2000, "shards did not know yet that many names were gone"),
    (9_703_701, 2000, "a SEND waits for a rogue that does not read until it is cut off"),
    (9_502_716, 2000, "a rogue took bytes of its ERROR before its missing CONNECT was a misdeed"),
    (10_232_339, 2000, "a frame that never ends announced more than message_bytes_max"),
    (10_603_386, 2000, "a late NACK of STOMP 1.1 refused the next delivery before that one's own NACK"),
    (11_031_475, 2000, "a drain that ran out cut a connection off whose client had just made room"),
    (11_033_054, 2000, "for a moment a message is there as input and as a message, so that memory is short"),
    (
        11_080_774,
        2000,
        "the next delivery came before the RECEIPT of an ACK in a transaction that was late for the one before",
    ),
    (11_088_740, 2000, "during a drain a client read more than a megabyte through a buffer of 64 bytes"),
    (11_102_330, 2000, "two subscriptions refused a message, and one consumer held both of its dead letters"),
    (11_314_780, 2000, "a SEND that had waited for memory met a full mailbox, which its ERROR named"),
    (
        13_201_227,
        2000,
        "last values waited for memory, and the RECEIPT behind them, until the drain was over",
    ),
    (
        13_206_490,
        2000,
        "where nothing was retained, a SUBSCRIBE awaited no value, and missed one that was set meanwhile",
    ),
    (13_506_224, 2000, "a late NACK of STOMP 1.1 with requeue:false covered another message"),
    (
        13_509_625,
        2000,
        "SENDs that went on filled a client that had to acknowledge them, and it missed answers",
    ),
    (13_607_474, 2000, "an audit did not know all reasons why a private queue delivers nothing for a while"),
    (
        13_702_957,
        2000,
        "a value and the same message as a live one were acknowledged in a transaction that ended",
    ),
    (
        13_801_290,
        2000,
        "a subscription that ended with a delivery, and another one that got one, looked like one",
    ),
    (13_810_695, 2000, "a message of a worker topic failed unread, and its dead-letter queue was full"),
    (14_003_045, 2000, "the store could not read a copy that waited for the end of an initial replay"),
    (
        17_029_189,
        1634,
        "a shard forgot a name and learned it again in one turn, and did not count it meanwhile",
    ),
    (23_008_561, 2000, "a rogue that does not read the pongs to its pings is not read either"),
    (17_033_456, 2000, "SENDs of a client waited for its own subscription for two minutes in all"),
    (29_017_348, 2000, "a policy of its own dropped messages in a run that filled the larger memory, too"),
    (38_011_435, 2000, "a dead-letter queue was one destination too many"),
    (
        36_010_301,
        2000,
        "a limit of connections that was drawn for more clients was left when there were fewer",
    ),
    (34_004_205, 2000, "a client forgot the last value that it held when the same live message came again"),
    (46_009_540, 2000, "the first consumer of an empty queue was refused while memory was full"),
    (50_002_118, 2000, "a client that reads once a minute made room at the moment at which it was given up"),
];

#[test]
fn the_simulator_does_not_repeat_its_mistakes() {
    for (seed, steps, mistake) in MISTAKES {
        let outcome = World::new(Options::new(seed, steps)).run(|_| true);
        assert!(outcome.is_ok(), "{seed}, {mistake}: {:?}", outcome.map_err(|failure| failure.violation));
    }
}
