# Net::Stomp over TCP: `perl client.pl PORT SCENARIO…`. Prints `PASS name` for each scenario.
#
# The library speaks STOMP 1.0: it neither escapes headers nor sends heart-beats by itself. It sends all headers that it
# is given, so the program can agree on heart-beats of 1.1 and send them itself.

use strict;
use warnings;
use utf8;

use Encode qw(encode_utf8 decode_utf8);
use Net::Stomp;

# Seconds until an awaited frame counts as missing.
my $LIMIT = 30;

# Seconds between heart-beats, both ways.
my $BEAT = 1;

my $topics = 0;

sub new_topic { return sprintf '/topic/perl-%d-%d-%d', $$, int(time), $topics++ }

sub new_queue { return new_topic() =~ s{/topic/}{/queue/}r }

sub check {
    my ( $condition, $what ) = @_;
    die "$what\n" unless $condition;
    return;
}

sub equal {
    my ( $actual, $expected ) = @_;
    $actual = '(nothing)' unless defined $actual;
    check( $actual eq $expected, "'$actual' instead of '$expected'" );
    return;
}

sub start {
    my ( $port, %headers ) = @_;
    my $stomp = Net::Stomp->new( { hostname => '127.0.0.1', port => $port, timeout => $LIMIT, reconnect_attempts => 1 } );
    my $connected = $stomp->connect( { login => 'guest', passcode => 'guest', %headers } );
    equal( $connected && $connected->command, 'CONNECTED' );
    check( $connected->headers->{session}, 'CONNECTED has no session' );
    return ( $stomp, $connected );
}

# Returns the next frame, which must have this command.
sub expect {
    my ( $stomp, $command ) = @_;
    my $frame = $stomp->receive_frame;
    equal( $frame && $frame->command, $command );
    return $frame;
}

sub expect_receipt {
    my ( $stomp, $id ) = @_;
    equal( expect( $stomp, 'RECEIPT' )->headers->{'receipt-id'}, $id );
    return;
}

sub subscribe {
    my ( $stomp, $topic ) = @_;
    $stomp->subscribe( { destination => $topic, id => '1', ack => 'auto', receipt => 'subscribed' } );
    expect_receipt( $stomp, 'subscribed' );
    return;
}

# Sends DISCONNECT, waits for its RECEIPT and for the broker's end of the connection.
sub finish {
    my ($stomp) = @_;
    $stomp->send_frame( Net::Stomp::Frame->new( { command => 'DISCONNECT', headers => { receipt => 'bye' } } ) );
    expect_receipt( $stomp, 'bye' );
    check( !defined $stomp->receive_frame, 'a frame came after the last RECEIPT' );
    return;
}

# Returns a session of this version; the library itself speaks 1.0, and sends the headers that the other versions need.
sub start_version {
    my ( $port, $version ) = @_;
    my ( $stomp, $connected ) = start( $port, 'accept-version' => $version, host => 'localhost' );
    equal( $connected->headers->{version} // '1.0', $version );
    return $stomp;
}

# Sends SUBSCRIBE; returns its messages. They may come before its RECEIPT or after it.
sub take {
    my ( $stomp, $destination, $count ) = @_;
    $stomp->subscribe( { destination => $destination, id => '1', ack => 'auto', receipt => 'subscribed' } );
    my @frames = map { $stomp->receive_frame } 0 .. $count;
    my @receipts = grep { $_->command eq 'RECEIPT' } @frames;
    equal( scalar @receipts,                       1 );
    equal( $receipts[0]->headers->{'receipt-id'}, 'subscribed' );
    return grep { $_->command eq 'MESSAGE' } @frames;
}

# Sends ACK or NACK of a message in the form of the version, and waits for its RECEIPT.
sub answer {
    my ( $stomp, $method, $message, $version, %headers ) = @_;
    $headers{subscription} = '1' if $version eq '1.1';
    $headers{id} = $message->headers->{ack} if $version eq '1.2';
    $stomp->$method( { frame => $message, receipt => 'answered', %headers } );
    expect_receipt( $stomp, 'answered' );
    return;
}

sub exchange {
    my ($port) = @_;
    for my $version ( undef, '1.0', '1.1', '1.2' ) {
        my ( $stomp, $connected )
            = start( $port, defined $version ? ( 'accept-version' => $version, host => 'localhost' ) : () );
        equal( $connected->headers->{version}, $version ) if defined $version && $version ne '1.0';
        my $topic = new_topic();
        subscribe( $stomp, $topic );
        my $text = 'Grüße, 世界';
        $stomp->send( { destination => $topic, body => encode_utf8($text), colour => 'blue' } );
        my $message = expect( $stomp, 'MESSAGE' );
        equal( decode_utf8( $message->body ), $text );
        equal( $message->destination, $topic );
        equal( $message->headers->{colour}, 'blue' );
        $stomp->unsubscribe( { id => '1', receipt => 'unsubscribed' } );
        expect_receipt( $stomp, 'unsubscribed' );
        check( $stomp->send_with_receipt( { destination => $topic, body => 'no subscriber' } ), 'no RECEIPT of SEND' );
        finish($stomp);
    }
    return;
}

sub heartbeats {
    my ($port) = @_;
    my $ms = $BEAT * 1000;
    my ( $stomp, $connected ) = start( $port, 'accept-version' => '1.1', host => 'localhost', 'heart-beat' => "$ms,$ms" );
    check( $connected->headers->{'heart-beat'}, 'CONNECTED agrees on no heart-beats' );
    for ( 1 .. 4 ) {
        check( $stomp->select->can_read($LIMIT), 'no heart-beat' );
        $stomp->socket->sysread( my $beats, 64 );
        check( defined $beats && $beats =~ /\A\n+\z/, 'not a heart-beat' );
        $stomp->socket->syswrite("\n");
    }
    check( $stomp->send_with_receipt( { destination => new_topic(), body => 'still here' } ), 'no RECEIPT of SEND' );
    finish($stomp);
    return;
}

sub binary {
    my ($port) = @_;
    my ($stomp) = start($port);
    my $topic = new_topic();
    subscribe( $stomp, $topic );
    my $body = join( q{}, map {chr} 0 .. 255 ) x 400;
    $stomp->send( { destination => $topic, body => $body, 'content-length' => length $body } );
    my $message = expect( $stomp, 'MESSAGE' );
    check( $message->body eq $body, 'the body is another one' );
    finish($stomp);
    return;
}

sub transactions {
    my ($port)     = @_;
    my ($sender)   = start($port);
    my ($receiver) = start($port);
    my $topic      = new_topic();
    subscribe( $receiver, $topic );
    for my $end ( 'ABORT', 'COMMIT' ) {
        my %transaction = ( transaction => "to $end" );
        $sender->send_frame( Net::Stomp::Frame->new( { command => 'BEGIN', headers => {%transaction} } ) );
        for my $word ( 'first', 'second' ) {
            my $message = { destination => $topic, body => "$word $end", %transaction };
            check( $sender->send_with_receipt($message), 'no RECEIPT of a SEND in the transaction' );
        }
        check( !$receiver->can_read( { timeout => 0 } ), "a MESSAGE came before $end" );
        $sender->send_frame( Net::Stomp::Frame->new( { command => $end, headers => {%transaction} } ) );
    }
    check( $sender->send_transactional( { destination => $topic, body => 'by the library' } ), 'send_transactional failed' );
    equal( expect( $receiver, 'MESSAGE' )->body, $_ ) for 'first COMMIT', 'second COMMIT', 'by the library';
    finish($_) for $sender, $receiver;
    return;
}

sub acks {
    my ($port) = @_;
    my @cases = (
        [ '1.0', 'client', '3' ], [ '1.1', 'client', '3' ], [ '1.2', 'client', '3' ],
        [ '1.1', 'client-individual', '1', '3' ], [ '1.2', 'client-individual', '1', '3' ],
    );
    for my $case (@cases) {
        my ( $version, $mode, @left ) = @{$case};
        my $queue = new_queue();
        my ($first) = start_version( $port, $version );
        $first->subscribe( { destination => $queue, id => '1', ack => $mode, receipt => 'subscribed' } );
        expect_receipt( $first, 'subscribed' );
        $first->send( { destination => $queue, body => $_ } ) for 1 .. 3;
        my @messages = map { expect( $first, 'MESSAGE' ) } 1 .. 3;
        equal( join( ' ', map { $_->body } @messages ), '1 2 3' );
        answer( $first, 'ack', $messages[1], $version );
        finish($first);
        my ($second) = start_version( $port, $version );
        my @again = take( $second, $queue, scalar @left );
        equal( join( ' ', map { $_->body } @again ), join ' ', @left );
        for my $message (@again) {
            equal( $message->headers->{redelivered},      'true' );
            equal( $message->headers->{'delivery-count'}, '2' );
        }
        finish($second);
    }
    return;
}

sub nacks {
    my ($port) = @_;
    for my $version ( '1.1', '1.2' ) {
        my $queue = new_queue();
        my ($stomp) = start_version( $port, $version );
        $stomp->subscribe( { destination => $queue, id => '1', ack => 'client-individual', receipt => 'subscribed' } );
        expect_receipt( $stomp, 'subscribed' );
        $stomp->send( { destination => $queue, body => 'rejected once' } );
        answer( $stomp, 'nack', expect( $stomp, 'MESSAGE' ), $version );
        my $again = expect( $stomp, 'MESSAGE' );
        equal( $again->body,                        'rejected once' );
        equal( $again->headers->{redelivered},      'true' );
        equal( $again->headers->{'delivery-count'}, '2' );
        answer( $stomp, 'ack', $again, $version );
        finish($stomp);
    }
    return;
}

# ACK and SEND in one transaction: ABORT undoes both, COMMIT moves the message.
sub moves {
    my ($port) = @_;
    for my $version ( '1.0', '1.1', '1.2' ) {
        my ( $queue, $done ) = ( new_queue(), new_queue() );
        my ($stomp) = start_version( $port, $version );
        $stomp->subscribe( { destination => $queue, id => '1', ack => 'client', receipt => 'subscribed' } );
        expect_receipt( $stomp, 'subscribed' );

        # The library waits for the RECEIPT of the SEND before it sends COMMIT.
        check( $stomp->send_transactional( { destination => $queue, body => 'job' } ), 'send_transactional failed' );
        my $job = expect( $stomp, 'MESSAGE' );
        equal( $job->body, 'job' );
        for my $end ( 'ABORT', 'COMMIT' ) {
            my %transaction = ( transaction => "to $end" );
            $stomp->send_frame( Net::Stomp::Frame->new( { command => 'BEGIN', headers => {%transaction} } ) );
            answer( $stomp, 'ack', $job, $version, %transaction );
            my $message = { destination => $done, body => $end, %transaction };
            check( $stomp->send_with_receipt($message), 'no RECEIPT of a SEND in the transaction' );
            $stomp->send_frame( Net::Stomp::Frame->new( { command => $end, headers => {%transaction} } ) );
        }
        finish($stomp);
        my ($other) = start_version( $port, $version );
        equal( ( take( $other, $done, 1 ) )[0]->body, 'COMMIT' );
        $other->unsubscribe( { id => '1' } );
        take( $other, $queue, 0 );
        finish($other);
    }
    return;
}

sub errors {
    my ($port) = @_;
    my ($stomp) = start($port);
    $stomp->send( { destination => new_topic() . '/*', body => 'no destination', receipt => 'never' } );
    my $error = expect( $stomp, 'ERROR' );
    check( $error->headers->{message}, 'the ERROR has no message' );
    check( ( $error->headers->{code} // q{} ) =~ /\AE-/, 'the ERROR has no code' );
    equal( $error->headers->{'receipt-id'}, 'never' );
    check( !defined $stomp->receive_frame, 'a frame came after the ERROR' );
    return;
}

my %scenarios = (
    exchange     => \&exchange,
    heartbeats   => \&heartbeats,
    binary       => \&binary,
    transactions => \&transactions,
    acks         => \&acks,
    nacks        => \&nacks,
    moves        => \&moves,
    errors       => \&errors,
);

my ( $port, @names ) = @ARGV;
for my $name (@names) {
    check( $scenarios{$name}, "no scenario $name" );
    eval { $scenarios{$name}->($port); 1 } or die "FAIL $name: $@";
    print "PASS $name\n";
}
