# Writes a store as stompserver does: one frame a file, and the state of the queues.
module StompServer
  class StompFrame
    attr_accessor :command, :headers, :body
    def initialize(command, headers, body)
      @command, @headers, @body = command, headers, body
    end
  end
end

directory = ARGV[0]
Dir.mkdir(directory) unless File.directory?(directory)
queues, frames = {}, {}

add = lambda do |dest, id, headers, body, listed = true|
  queue_dir = directory + '/' + dest.gsub('/', '_')
  Dir.mkdir(queue_dir) unless File.directory?(queue_dir)
  queues[dest] ||= { :size => 0, :frames => [], :msgid => 1, :enqueued => 0, :dequeued => 0, :exceptions => 0,
                     :queue_dir => queue_dir }
  frames[dest] ||= {}
  headers = { 'destination' => dest }.merge(headers).merge('message-id' => id)
  image = Marshal.dump(StompServer::StompFrame.new('SEND', headers, ''))
  File.open("#{queue_dir}/#{id}", 'wb') do |file|
    file.syswrite(format('%08x', image.length) + format('%08x', body.length))
    file.syswrite(image)
    file.syswrite(body)
  end
  next unless listed
  queues[dest][:frames].push(id)
  queues[dest][:size] += 1
  frames[dest][id] = { :exceptions => headers['x-exceptions'].to_i, :client_id => 'c' }
end

add.call('/queue/a', 'host-1700000002-000001-2', { 'content-type' => 'text/plain', 'receipt' => 'r' }, 'second')
add.call('/queue/a', 'host-1700000001-000001-1', { 'x-exceptions' => '2', 'max-exceptions' => '5' }, 'first'.b)
add.call('/queue/a', 'host-1700000009-000001-9', { 'expires' => '1893456000000' }, "late \u00e9".b, false)
add.call('/queue/b_c', 'host-1700000003-000001-1', { 'session' => 's' }, "\x00\xff".b)
add.call('/queue/deadletter', 'host-1700000004-000001-1', { 'destination' => '/queue/a' }, 'dead')
queues['/queue/a'][:frames].push('host-1600000000-000001-0')
File.open("#{directory}/qinfo", 'wb') { |file| file.write(Marshal.dump({ :queues => queues, :frames => frames })) }
