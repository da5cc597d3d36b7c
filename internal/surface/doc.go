// Package surface has what the command line and the HTTP API share: the JSON forms of what they read and write. The
// same thing has the same keys on every surface.
package surface
