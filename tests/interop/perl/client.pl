# Net::Stomp over TCP: `perl client.pl PORT SCENARIO…`. Prints `PASS name` for each scenario.
#
# The library speaks STOMP 1.0: it neither escapes headers nor sends heart-beats by itself. It passes on whatever
# headers it is given, so that heart-beats of 1.1 can be agreed on and sent by hand.

use strict;
use warnings;
use utf8;

use Encode qw(encode_utf8 decode_utf8);
use Net::Stomp;

# Seconds until what a scenario waits for counts as never coming.
my $LIMIT = 10;

# Seconds between heart-beats, each way.
my $BEAT = 0.5;

my $topics = 0;

sub new_topic { return sprintf '/topic/perl-%d-%d-%d', $$, int(time), $topics++ }

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

# The next frame, which must be of this command.
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

# DISCONNECT, its RECEIPT, then the broker's end of the connection.
sub finish {
    my ($stomp) = @_;
    $stomp->send_frame( Net::Stomp::Frame->new( { command => 'DISCONNECT', headers => { receipt => 'bye' } } ) );
    expect_receipt( $stomp, 'bye' );
    check( !defined $stomp->receive_frame, 'a frame came after the last RECEIPT' );
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
        check( $stomp->send_with_receipt( { destination => $topic, body => 'nobody listens' } ), 'no RECEIPT of SEND' );
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

sub errors {
    my ($port) = @_;
    my ($stomp) = start($port);
    $stomp->send( { destination => new_topic() . '/*', body => 'to whom?', receipt => 'never' } );
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
    errors       => \&errors,
);

my ( $port, @names ) = @ARGV;
for my $name (@names) {
    check( $scenarios{$name}, "no scenario $name" );
    eval { $scenarios{$name}->($port); 1 } or die "FAIL $name: $@";
    print "PASS $name\n";
}
