// Package surface has the requests that the command line and the HTTP API share, the functions that carry them out, and
// the JSON forms of the answers. A record has the same keys on every surface.
package surface
