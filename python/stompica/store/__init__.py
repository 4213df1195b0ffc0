"""The files of `store=file` while no broker uses them: `stompica store info|verify|export|import|compact`.

docs/store.md describes the commands, and the JSON lines that they read and write.
"""
