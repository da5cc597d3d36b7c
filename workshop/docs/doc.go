// Package docs tests the README and the pages in docs. The Go code in them compiles. The tests, commands, settings,
// metrics and pages that they name exist.
package docs
