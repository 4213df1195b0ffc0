// Shared by the examples: a connected @stomp/stompjs client, and the command line.

import { parseArgs } from 'node:util'
import { Client } from '@stomp/stompjs'
import { WebSocket } from 'ws'

// The library needs a browser's WebSocket; Node has its own only from version 22 on.
Object.assign(globalThis, { WebSocket })

/** Returns the `--name value` pairs of the command line over `defaults`; numbers stay numbers. */
export function options(defaults) {
  const described = Object.keys(defaults).map(name => [name, { type: 'string' }])
  const { values } = parseArgs({ options: Object.fromEntries(described) })
  for (const name of Object.keys(values)) {
    if (typeof defaults[name] === 'number') values[name] = Number(values[name])
  }
  return { ...defaults, ...values }
}

/** Returns a connected client. It ends the program if the broker sends ERROR or the connection is lost. */
export function connect({ host, port }) {
  return new Promise(resolve => {
    let end = `no broker answers at ${host}:${port}`
    const client = new Client({
      brokerURL: `ws://${host}:${port}/stomp`,
      connectHeaders: { host },
      reconnectDelay: 0,
      heartbeatIncoming: 10_000,
      heartbeatOutgoing: 10_000,
      onConnect: () => {
        end = 'the connection was lost'
        resolve(client)
      },
      onStompError: frame => {
        console.error(`${frame.headers.message}\n${frame.body}`)
        process.exit(1)
      },
      // Every failure also closes the WebSocket.
      onWebSocketClose: () => {
        if (!client.active) return
        console.error(end)
        process.exit(1)
      },
    })
    client.activate()
  })
}

let receipts = 0

/** Calls `act` with a header that requests a RECEIPT, and waits for it. */
export function receipt(client, act) {
  return new Promise(resolve => {
    const id = `receipt-${receipts++}`
    client.watchForReceipt(id, resolve)
    act({ receipt: id })
  })
}

/** Subscribes; the subscription has taken effect when this returns. */
export function subscribe(client, destination, onMessage) {
  return receipt(client, headers => client.subscribe(destination, onMessage, headers))
}
