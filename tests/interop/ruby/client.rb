# frozen_string_literal: true

# The Ruby stomp gem over TCP: `ruby client.rb PORT SCENARIO…`. Prints `PASS name` for each scenario.

require 'securerandom'
require 'stomp'
require 'timeout'

# Seconds until an awaited frame counts as missing.
LIMIT = 30

# Milliseconds between heart-beats, both ways.
BEAT_MS = 1000

# Records each run of the library's heart-beat threads, so that a scenario can wait for them.
class BeatLog < Stomp::NullLogger
  attr_reader :checks

  def initialize
    super
    @checks = Queue.new
  end

  def on_hbfire(_parameters, what, _details = {})
    @checks << what if what == 'receive_fire'
  end
end

def check(condition, what)
  raise what unless condition
end

def equal(actual, expected)
  check(actual == expected, "#{actual.inspect} instead of #{expected.inspect}")
end

def new_topic
  "/topic/ruby-#{SecureRandom.hex(8)}"
end

def new_queue
  new_topic.sub('/topic/', '/queue/')
end

def open_connection(port, version: '1.2', beats: '0,0', **options)
  headers = { 'accept-version' => version, 'host' => 'localhost', 'heart-beat' => beats }
  hosts = [{ login: 'guest', passcode: 'guest', host: '127.0.0.1', port: port }]
  Stomp::Connection.new({ hosts: hosts, reliable: false, connect_headers: headers, **options })
end

# Returns the next frame, which must have this command.
def expect(connection, command)
  frame = connection.receive
  equal(frame&.command, command)
  frame
end

def expect_receipt(connection, id)
  equal(expect(connection, 'RECEIPT').headers['receipt-id'], id)
end

# Returns a connection and a new topic to which it is subscribed.
def open_subscribed(port)
  topic = new_topic
  connection = open_connection(port)
  connection.subscribe(topic, { receipt: 'subscribed' }, '1')
  expect_receipt(connection, 'subscribed')
  [connection, topic]
end

# Sends DISCONNECT, waits for its RECEIPT and for the library's end of the connection.
def close(connection)
  connection.disconnect(receipt: 'bye')
  equal(connection.disconnect_receipt.headers['receipt-id'], 'bye')
  check(connection.closed?, 'the connection is still open')
end

def exchange(port)
  { '1.0' => { colour: 'blue' },
    '1.1' => { colour: 'blue:green', lines: "one\ntwo", path: 'C:\\dir' },
    '1.2' => { colour: 'blue:green', lines: "one\r\ntwo", path: 'C:\\dir' } }.each do |version, headers|
    topic = new_topic
    connection = open_connection(port, version: version)
    equal(connection.protocol, version)
    connection.subscribe(topic, { receipt: 'subscribed' }, '1')
    expect_receipt(connection, 'subscribed')
    connection.publish(topic, 'Grüße, 世界', headers)
    message = expect(connection, 'MESSAGE')
    equal(message.body.dup.force_encoding('UTF-8'), 'Grüße, 世界')
    headers.each { |name, value| equal(message.headers[name.to_s], value) }
    equal(message.headers['destination'], topic)
    connection.unsubscribe(topic, { receipt: 'unsubscribed' }, '1')
    expect_receipt(connection, 'unsubscribed')
    connection.publish(topic, 'no subscriber', receipt: 'sent')
    expect_receipt(connection, 'sent')
    close(connection)
  end
end

# Sends STOMP instead of CONNECT, and lines that end with CR LF, which 1.2 allows.
def crlf(port)
  topic = new_topic
  connection = open_connection(port, stompconn: true, usecrlf: true)
  connection.subscribe(topic, { receipt: 'subscribed' }, '1')
  expect_receipt(connection, 'subscribed')
  connection.publish(topic, "one\r\ntwo", colour: 'blue')
  message = expect(connection, 'MESSAGE')
  equal([message.body, message.headers['colour']], ["one\r\ntwo", 'blue'])
  close(connection)
end

def heartbeats(port)
  log = BeatLog.new
  connection = open_connection(port, beats: "#{BEAT_MS},#{BEAT_MS}", logger: log)
  5.times { log.checks.pop }
  check(connection.hbsend_count >= 2, "#{connection.hbsend_count} heart-beats sent")
  check(connection.hbrecv_count >= 2, "#{connection.hbrecv_count} heart-beats received")
  connection.publish(new_topic, 'still here', receipt: 'sent')
  expect_receipt(connection, 'sent')
  close(connection)
end

def binary(port)
  connection, topic = open_subscribed(port)
  body = (0..255).to_a.pack('C*') * 400
  connection.publish(topic, body, 'content-type': 'application/octet-stream')
  equal(expect(connection, 'MESSAGE').body.b, body)
  close(connection)
end

def transactions(port)
  connection, topic = open_subscribed(port)
  %w[abort commit].each do |ending|
    connection.begin(ending)
    %w[first second].each { |word| connection.publish(topic, "#{word} #{ending}", transaction: ending) }
    connection.publish(new_topic, 'all accepted?', receipt: 'taken')
    expect_receipt(connection, 'taken')
    connection.public_send(ending, ending)
  end
  equal(expect(connection, 'MESSAGE').body, 'first commit')
  equal(expect(connection, 'MESSAGE').body, 'second commit')
  close(connection)
end

def subscribe(connection, destination, headers = {})
  connection.subscribe(destination, { receipt: 'subscribed', **headers }, '1')
  expect_receipt(connection, 'subscribed')
end

# Sends SUBSCRIBE; returns its messages. They may come before its RECEIPT or after it.
def take(connection, destination, count)
  connection.subscribe(destination, { receipt: 'subscribed' }, '1')
  receipts, messages = Array.new(count + 1) { connection.receive }.partition { |frame| frame.command == 'RECEIPT' }
  equal(receipts.map { |frame| frame.headers['receipt-id'] }, ['subscribed'])
  messages
end

# Sends ACK or NACK of a message in the form of the connection's version, and waits for its RECEIPT.
def answer(connection, command, message, headers = {})
  if connection.protocol == '1.2'
    id = message.headers['ack']
  else
    id = message.headers['message-id']
    headers = { subscription: message.headers['subscription'], **headers } if connection.protocol == '1.1'
  end
  connection.public_send(command, id, { receipt: 'answered', **headers })
  expect_receipt(connection, 'answered')
end

# The second of three messages is acknowledged, then the client disconnects; the next client gets what is left.
def acks(port)
  [['1.0', 'client', %w[3]], ['1.1', 'client', %w[3]], ['1.2', 'client', %w[3]],
   ['1.1', 'client-individual', %w[1 3]], ['1.2', 'client-individual', %w[1 3]]].each do |version, mode, left|
    queue = new_queue
    first = open_connection(port, version: version)
    subscribe(first, queue, ack: mode)
    %w[1 2 3].each { |body| first.publish(queue, body) }
    messages = Array.new(3) { expect(first, 'MESSAGE') }
    equal(messages.map(&:body), %w[1 2 3])
    answer(first, :ack, messages[1])
    close(first)
    second = open_connection(port, version: version)
    again = take(second, queue, left.size)
    equal(again.map(&:body), left)
    again.each { |message| equal(message.headers.values_at('redelivered', 'delivery-count'), %w[true 2]) }
    close(second)
  end
end

def nacks(port)
  %w[1.1 1.2].each do |version|
    queue = new_queue
    connection = open_connection(port, version: version)
    subscribe(connection, queue, ack: 'client-individual')
    connection.publish(queue, 'rejected once')
    answer(connection, :nack, expect(connection, 'MESSAGE'))
    again = expect(connection, 'MESSAGE')
    equal([again.body, again.headers['redelivered'], again.headers['delivery-count']], ['rejected once', 'true', '2'])
    answer(connection, :ack, again)
    close(connection)
  end
end

# ACK and SEND in one transaction: abort undoes both, commit moves the message.
def moves(port)
  %w[1.0 1.1 1.2].each do |version|
    queue, done = new_queue, new_queue
    connection = open_connection(port, version: version)
    subscribe(connection, queue, ack: 'client')
    connection.publish(queue, 'job')
    job = expect(connection, 'MESSAGE')
    %w[abort commit].each do |ending|
      connection.begin(ending)
      answer(connection, :ack, job, transaction: ending)
      connection.publish(done, ending, transaction: ending, receipt: 'taken')
      expect_receipt(connection, 'taken')
      connection.public_send(ending, ending)
    end
    close(connection)
    other = open_connection(port, version: version)
    equal(take(other, done, 1).map(&:body), %w[commit])
    other.unsubscribe(done, {}, '1')
    take(other, queue, 0)
    close(other)
  end
end

# The gem's client, which receives and acknowledges in its own thread.
def client(port)
  queue = new_queue
  headers = { 'accept-version' => '1.2', 'host' => 'localhost' }
  hosts = [{ login: 'guest', passcode: 'guest', host: '127.0.0.1', port: port }]
  client = Stomp::Client.new({ hosts: hosts, reliable: false, connect_headers: headers })
  bodies = Queue.new
  client.subscribe(queue, ack: 'client-individual', id: '1') do |message|
    client.acknowledge(message)
    bodies << message.body
  end
  client.begin('all')
  3.times { |number| client.publish(queue, "job #{number}", transaction: 'all') }
  client.commit('all')
  3.times { |number| equal(bodies.pop, "job #{number}") }
  client.close
  other = open_connection(port)
  take(other, queue, 0)
  close(other)
end

def errors(port)
  connection = open_connection(port)
  connection.publish("#{new_topic}/*", 'no destination', receipt: 'never')
  error = expect(connection, 'ERROR')
  check(error.headers['message'], 'the ERROR has no message')
  check(error.headers['code'].start_with?('E-'), 'the ERROR has no code')
  equal(error.headers['receipt-id'], 'never')
  equal(connection.receive, nil)
  check(connection.closed?, 'the connection is still open')
end

SCENARIOS = %w[exchange crlf heartbeats binary transactions acks nacks moves client errors].freeze

port = Integer(ARGV.shift)
ARGV.each do |name|
  check(SCENARIOS.include?(name), "no scenario #{name}")
  Timeout.timeout(LIMIT) { send(name, port) }
  puts "PASS #{name}"
end
