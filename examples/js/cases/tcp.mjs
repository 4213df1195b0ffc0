// A STOMP client over TCP in 100 lines, for cases that need frames as they are on the wire.

import { once } from 'node:events'
import { createConnection } from 'node:net'

const ESCAPES = { '\\': '\\\\', '\r': '\\r', '\n': '\\n', ':': '\\c' }
const UNESCAPES = Object.fromEntries(Object.entries(ESCAPES).map(([plain, escaped]) => [escaped, plain]))

const escape = text => String(text).replace(/[\\\r\n:]/g, found => ESCAPES[found])
const unescape = text => text.replace(/\\[\\rnc]/g, found => UNESCAPES[found])

/** Returns the bytes of a frame. Headers of CONNECT are not escaped in any version. */
export function encode(command, headers = {}, body = '') {
  const plain = command === 'CONNECT' ? String : escape
  const lines = Object.entries(headers).map(([name, value]) => `${plain(name)}:${plain(value)}\n`)
  return Buffer.concat([Buffer.from(`${command}\n${lines.join('')}\n`), Buffer.from(body), Buffer.of(0)])
}

/** Returns the server's frame at the start of `bytes` with its length, or undefined if it is incomplete. */
function decode(bytes) {
  let start = 0
  while (bytes[start] === 10) start++
  const end = bytes.indexOf('\n\n', start)
  if (end < 0) return undefined
  const [command, ...lines] = bytes.toString('utf8', start, end).split('\n')
  const headers = {}
  for (const line of lines) {
    const colon = line.indexOf(':')
    headers[unescape(line.slice(0, colon))] ??= unescape(line.slice(colon + 1))
  }
  const counted = headers['content-length']
  const stop = counted === undefined ? bytes.indexOf(0, end + 2) : end + 2 + Number(counted)
  if (stop < 0 || bytes.length <= stop) return undefined
  return { frame: { command, headers, body: bytes.subarray(end + 2, stop) }, length: stop + 1 }
}

/** A connection whose frames are awaited one by one. */
export class TcpClient {
  #frames = []
  #waiting = []
  #bytes = Buffer.alloc(0)
  #ended = false

  /** Returns a connected session, with these CONNECT headers. */
  static async open(port, headers = { 'accept-version': '1.2', host: 'localhost' }) {
    const client = new TcpClient()
    client.socket = createConnection({ port, host: '127.0.0.1', noDelay: true })
    await once(client.socket, 'connect')
    client.socket.on('data', chunk => client.#take(chunk))
    client.socket.on('error', () => {})
    client.socket.on('close', () => client.#end())
    client.send('CONNECT', headers)
    client.connected = await client.next()
    return client
  }

  #take(chunk) {
    this.#bytes = this.#bytes.length > 0 ? Buffer.concat([this.#bytes, chunk]) : chunk
    let taken = 0
    for (let found; (found = decode(this.#bytes.subarray(taken))); taken += found.length) {
      const waiting = this.#waiting.shift()
      if (waiting) waiting(found.frame)
      else this.#frames.push(found.frame)
    }
    this.#bytes = this.#bytes.subarray(taken)
  }

  #end() {
    this.#ended = true
    for (const waiting of this.#waiting.splice(0)) waiting(undefined)
  }

  send(command, headers, body) {
    this.socket.write(encode(command, headers, body))
  }

  /** Returns the next frame; `undefined` after the end of the connection. */
  next() {
    if (this.#frames.length > 0) return Promise.resolve(this.#frames.shift())
    if (this.#ended) return Promise.resolve(undefined)
    return new Promise(resolve => this.#waiting.push(resolve))
  }

  /** Sends a frame with a receipt header and waits for its RECEIPT, which must be the next frame. */
  async receipt(command, headers, body) {
    this.send(command, { ...headers, receipt: command }, body)
    const frame = await this.next()
    if (frame?.headers['receipt-id'] !== command) throw new Error(`no RECEIPT of ${command}: ${describe(frame)}`)
  }

  /** Sends DISCONNECT, waits for its RECEIPT and for the broker's end of the connection. */
  async close() {
    await this.receipt('DISCONNECT')
    const more = await this.next()
    if (more) throw new Error(`after the last RECEIPT came ${describe(more)}`)
  }
}

/** Describes a frame for the message of a failure. */
export function describe(frame) {
  return frame ? `${frame.command} ${JSON.stringify(frame.headers)} ${frame.body.subarray(0, 60)}` : 'the end'
}
