// @stomp/stompjs over WebSocket in Node: `node stompjs.mjs PORT SCENARIO…`

import * as stomp from '@stomp/stompjs'
import { WebSocket } from 'ws'
import * as scenarios from './stompjs_scenarios.mjs'
import { main } from './support.mjs'

// Node has its own WebSocket only from version 22 on; `ws` is the one that applications use.
Object.assign(globalThis, { WebSocket })

const run = scenario => scenario && (port => scenario({ stomp, url: `ws://127.0.0.1:${port}/stomp` }))

process.exit(await main(name => run(scenarios[name])))
