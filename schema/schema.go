// Package schema holds the database schema as numbered SQL migrations, embedded into
// the binary, once for each database: the same tables and versions in its own words.
//
// The files are in goose's format, each with a way up and a way down. They are append-only: a file that was released is
// never changed. Workers renew their leases during a migration of PostgreSQL. So no migration rewrites a table, and an
// index on a large table is made concurrently. Names in the files for PostgreSQL are unqualified, so that they apply to
// the schema that the search_path names.
//
// The package also says what the versions found in a database mean, and runs goose, for all adapters
// alike. It opens no database and takes no lock: the adapters do.
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

// Dialect is the schema as one database understands it.
type Dialect struct {
	folder  string
	dialect goose.Dialect
}

// The dialects. Each version has the same number and the same name in all of them.
var (
	Postgres = Dialect{"postgres", goose.DialectPostgres}
	SQLite   = Dialect{"sqlite", goose.DialectSQLite3}
)

// Dialects returns all of them.
func Dialects() []Dialect { return []Dialect{Postgres, SQLite} }

// String returns the name of the dialect.
func (d Dialect) String() string { return d.folder }

// FS holds the migrations, named like 00001_tables.sql.
func (d Dialect) FS() fs.FS {
	sub, err := fs.Sub(files, d.folder)
	if err != nil { // only a malformed path, and it is not
		panic(err)
	}
	return sub
}

// Version is one migration file.
type Version struct {
	Number int64
	Name   string // without number and extension
}

// Versions returns the migrations in their order.
func (d Dialect) Versions() []Version {
	names, err := fs.Glob(d.FS(), "*.sql")
	if err != nil { // only a malformed pattern, and it is not
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

// Latest returns the newest version, the one this build needs.
func (d Dialect) Latest() int64 {
	versions := d.Versions()
	return versions[len(versions)-1].Number
}

// Latest returns the newest version, which is the same in every dialect.
func Latest() int64 { return Postgres.Latest() }
