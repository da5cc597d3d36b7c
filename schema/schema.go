// Package schema holds the database schema as numbered SQL migrations, embedded
// into the binary.
//
// The files are in goose's format, each with a way up and a way down. They are
// append-only: a file that was released is never changed. Names in them are unqualified, so
// that they apply to whichever schema the search_path names. The package only
// carries the files; package store/postgres runs them.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// FS holds the migrations, named like 00001_tables.sql.
//
//go:embed *.sql
var FS embed.FS

// Version is one migration file.
type Version struct {
	Number int64
	Name   string // without number and extension
}

// Versions returns the migrations in their order.
func Versions() []Version {
	files, err := fs.Glob(FS, "*.sql")
	if err != nil { // only a malformed pattern, and it is not
		panic(err)
	}
	versions := make([]Version, len(files))
	for i, file := range files { // Glob sorts, and the numbers have leading zeros
		number, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("schema: %s does not begin with a number", file))
		}
		versions[i] = Version{n, name}
	}
	return versions
}

// Latest returns the newest version, the one this build needs.
func Latest() int64 {
	versions := Versions()
	return versions[len(versions)-1].Number
}
