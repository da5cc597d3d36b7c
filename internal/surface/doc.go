// Package surface has what the command line and the HTTP API share: their requests, the functions that carry them out,
// and the JSON forms of the answers. The same thing has the same keys on every surface.
package surface
