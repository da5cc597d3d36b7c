// Package schema contains the database schema as numbered SQL migrations, embedded into the binary. Each database has
// its own migrations, with the same tables and versions in its dialect of SQL.
//
// The files are in goose's format, each with statements to apply it and to revert it. They are append-only: a file that
// was released is never changed. Workers renew their leases during a migration of PostgreSQL. So no migration rewrites
// a table, and an index on a large table is created concurrently. Names in the files for PostgreSQL are unqualified, so
// that they apply to the schema that the search_path names.
//
// The package also interprets the versions found in a database, and runs goose, for all adapters. It opens no database
// and acquires no lock; the adapters do that.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Dialect is the schema in the SQL of one database.
type Dialect struct {
	folder  string
	dialect goose.Dialect
}

// The dialects. Each version has the same number and the same name in all of them.
var (
	Postgres = Dialect{"postgres", goose.DialectPostgres}
	SQLite   = Dialect{"sqlite", goose.DialectSQLite3}
)

// Dialects returns all dialects.
func Dialects() []Dialect { return []Dialect{Postgres, SQLite} }

// String returns the name of the dialect.
func (d Dialect) String() string { return d.folder }

// FS contains the migrations, named like 00001_tables.sql.
func (d Dialect) FS() fs.FS {
	sub, err := fs.Sub(files, d.folder)
	if err != nil { // impossible: the path is valid
		panic(err)
	}
	return sub
}

// Version is one migration file.
type Version struct {
	Number int64
	Name   string // without number and extension
}

// Versions returns the migrations in order.
func (d Dialect) Versions() []Version {
	names, err := fs.Glob(d.FS(), "*.sql")
	if err != nil { // impossible: the pattern is valid
		panic(err)
	}
	versions := make([]Version, len(names))
	for i, file := range names { // Glob sorts, and the numbers have leading zeros
		number, name, _ := strings.Cut(strings.TrimSuffix(file, ".sql"), "_")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic(fmt.Sprintf("schema: %s does not begin with a number", file))
		}
		versions[i] = Version{n, name}
	}
	return versions
}

// Latest returns the newest version, which is the one that this build needs.
func (d Dialect) Latest() int64 {
	versions := d.Versions()
	return versions[len(versions)-1].Number
}

// Latest returns the newest version, which is the same in every dialect.
func Latest() int64 { return Postgres.Latest() }
