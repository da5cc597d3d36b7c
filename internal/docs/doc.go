// Package docs tests that README and docs say what is so: the Go in them compiles, and the
// tests, commands, settings, metrics and pages they name exist.
package docs
