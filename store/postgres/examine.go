package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
)

var _ doctor.StoreChecker = (*Store)(nil)

// oldest is the first version that has everything the statements use.
const oldest = 13

// keeping is what is known of how a server is kept.
type keeping struct {
	version  string
	settings map[string]string // in the units of pg_settings
	standby  bool
	replicas int64 // that may be behind
	synced   int64 // that a commit waits for
	pooling  pooling
	sessions bool    // the store has sessions of its own
	role     string  // that connects
	rights   *rights // nil if there is no schema yet
}

// rights are those that the user lacks.
type rights struct {
	Role      string
	Schema    bool           // may not use it
	Tables    pq.StringArray // may not read or write them
	Sequences pq.StringArray
}

// Settings implements doctor.StoreChecker.
func (s *Store) Settings(ctx context.Context) ([]doctor.Check, error) {
	k := keeping{pooling: s.pooling, sessions: s.sessions, role: s.config.User}
	err := s.do(ctx, "ask for the settings", func() error {
		var err error
		if k.settings, err = s.readSettings(ctx, "server_version", "fsync", "full_page_writes", "synchronous_commit",
			"synchronous_standby_names", "default_transaction_read_only"); err != nil {
			return err
		}
		k.version = k.settings["server_version"]
		replicas, err := one[struct {
			Standby   bool
			Following int64
			WaitedFor int64 `db:"waited_for"`
		}](ctx, s, s.db, "settings_replicas", pq.StringArray{"async", "potential"}, pq.StringArray{"sync", "quorum"})
		if err != nil {
			return err
		}
		k.standby, k.replicas, k.synced = replicas.Standby, replicas.Following, replicas.WaitedFor
		lacks, err := one[rights](ctx, s, s.db, "settings_rights", s.schema)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		k.rights = &lacks
		return err
	})
	if err != nil {
		return nil, err
	}
	return []doctor.Check{
		k.versionCheck(), k.primaryCheck(), k.durabilityCheck(), k.poolerCheck(), k.presenceCheck(), k.rightsCheck(s.schema),
	}, nil
}

// readSettings returns what holds in a session, by names in lower case.
func (s *Store) readSettings(ctx context.Context, more ...string) (map[string]string, error) {
	var rows []struct{ Name, Setting string }
	names := slices.AppendSeq(more, maps.Keys(standard))
	if err := s.all(ctx, s.db, &rows, "settings", pq.StringArray(names)); err != nil {
		return nil, err
	}
	found := make(map[string]string, len(rows))
	for _, row := range rows {
		found[row.Name] = row.Setting
	}
	return found, nil
}

// unset names the standard settings that do not hold, as "name = value". Those of TCP cannot be read where the pooler is
// on the server's machine.
func unset(found map[string]string) []string {
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(standard)) {
		if !strings.HasPrefix(name, "tcp_") && found[name] != standard[name] {
			missing = append(missing, name+" = "+pq.QuoteLiteral(standard[name]))
		}
	}
	return missing
}

// warnOfSettings logs which settings a pooler keeps from the sessions that it lends.
func (s *Store) warnOfSettings(ctx context.Context) {
	found, err := s.readSettings(ctx)
	if err != nil {
		return // the next statement says more
	}
	if missing := unset(found); len(missing) > 0 {
		s.log.WithField("settings", strings.Join(missing, ", ")).
			Warn("behind a connection pooler in transaction mode these settings must be those of the role, see docs/poolers.md")
	}
}

func (k keeping) versionCheck() doctor.Check {
	f := doctor.Check{Name: "store version", Severity: doctor.OK, Detail: "PostgreSQL " + k.version}
	major := strings.IndexFunc(k.version+".", func(r rune) bool { return r < '0' || r > '9' }) // of 16.4, or 18beta1
	if n, err := strconv.Atoi(k.version[:major]); err == nil && n < oldest {
		f.Severity = doctor.Failed
		f.Remedy = holdfast.Advice(fmt.Sprintf("use PostgreSQL %d or later", oldest))
	}
	return f
}

func (k keeping) primaryCheck() doctor.Check {
	f := doctor.Check{Name: "store primary", Severity: doctor.OK, Detail: "this is the primary"}
	switch {
	case k.standby:
		f.Severity, f.Detail = doctor.Failed, "this is a standby, where nothing can be stored"
		f.Remedy = holdfast.Hint{Kind: holdfast.HintPrimary}
	case k.settings["default_transaction_read_only"] == "on":
		f.Severity, f.Detail = doctor.Failed, "transactions are read-only by default"
		f.Remedy = holdfast.Advice("set default_transaction_read_only = off for this user and database, and find out who set it and why")
	}
	return f
}

func (k keeping) durabilityCheck() doctor.Check {
	f := doctor.Check{Name: "store durability", Severity: doctor.OK, Detail: "commits are on the disk when they return"}
	commit, standbys := k.settings["synchronous_commit"], k.settings["synchronous_standby_names"]
	set := func(severity doctor.Severity, detail, remedy string) {
		f.Severity, f.Detail, f.Remedy = severity, detail, holdfast.Advice(remedy)
	}
	switch {
	case k.settings["fsync"] == "off":
		set(doctor.Failed, "fsync = off: a crash of the machine loses commits and can damage the database", "set fsync = on in postgresql.conf and reload")
	case commit == "off":
		set(doctor.Failed, "synchronous_commit = off: a crash of the server loses the tasks accepted last", "set synchronous_commit = on for this user, database or server")
	case k.settings["full_page_writes"] == "off":
		set(doctor.Warning, "full_page_writes = off: a crash of the machine can damage the database", "set full_page_writes = on, unless the file system never tears a page")
	case standbys != "" && commit == "local":
		set(doctor.Warning, "synchronous_commit = local: commits do not wait for the synchronous replicas", "set synchronous_commit = on, or never promote a replica")
	case k.replicas > 0 && k.synced == 0:
		set(doctor.Warning, fmt.Sprintf("commits wait for no replica (%d may be behind): promoting one can lose accepted tasks, and run finished ones again", k.replicas),
			"name one in synchronous_standby_names and promote only that")
	}
	return f
}

func (k keeping) poolerCheck() doctor.Check {
	f := doctor.Check{Name: "store pooler", Severity: doctor.OK, Detail: "each connection has a session of its own"}
	if k.pooling != lentSession {
		return f
	}
	f.Detail = "a connection pooler lends sessions for single transactions and tracks prepared statements"
	if missing := unset(k.settings); len(missing) > 0 {
		f.Severity = doctor.Warning
		f.Detail += "; the sessions lack " + strings.Join(missing, ", ")
		f.Remedy = holdfast.Hint{Kind: holdfast.HintSessionSettings, Arg: pq.QuoteIdentifier(k.role)}
	}
	return f
}

func (k keeping) presenceCheck() doctor.Check {
	f := doctor.Check{Name: "store presence", Severity: doctor.OK, Detail: "the store has sessions that can show which workers are present"}
	if k.pooling == lentSession && !k.sessions {
		f.Severity, f.Detail = doctor.Warning, "presence is off, because a connection pooler keeps no sessions; recovery waits for leases"
		f.Remedy = holdfast.Hint{Kind: holdfast.HintDirectURL}
	}
	return f
}

// rightsCheck names the rights that are missing, and the statements that grant them.
func (k keeping) rightsCheck(schema string) doctor.Check {
	f := doctor.Check{Name: "store rights", Severity: doctor.OK}
	if k.rights == nil {
		f.Severity, f.Detail = doctor.Skipped, fmt.Sprintf("there is no schema %q yet", schema)
		return f
	}
	var missing, grants []string
	lack := func(missed, right, object string) {
		missing = append(missing, missed)
		grants = append(grants, fmt.Sprintf("grant %s on %s to %s", right, object, pq.QuoteIdentifier(k.rights.Role)))
	}
	quoted := pq.QuoteIdentifier(schema)
	if k.rights.Schema {
		lack("use the schema "+schema, "usage", "schema "+quoted)
	}
	if names := k.rights.Tables; len(names) > 0 {
		lack("read and write "+strings.Join(names, ", "), "select, insert, update, delete", "all tables in schema "+quoted)
	}
	if names := k.rights.Sequences; len(names) > 0 {
		lack("use "+strings.Join(names, ", "), "usage, update", "all sequences in schema "+quoted)
	}
	if len(missing) == 0 {
		f.Detail = k.rights.Role + " may read and write all tables"
		return f
	}
	f.Severity = doctor.Failed
	f.Detail = k.rights.Role + " may not " + strings.Join(missing, ", nor ")
	f.Remedy = holdfast.Hint{Kind: holdfast.HintGrant, Arg: strings.Join(grants, "; ")}
	return f
}

// Janitors implements doctor.StoreChecker.
func (s *Store) Janitors(ctx context.Context, age time.Duration) (doctor.Janitors, error) {
	type row struct {
		Receipts, Oldest, Turned int64
		Setback                  sql.NullTime
	}
	var found row
	err := s.do(ctx, "look for the janitors", func() error {
		var err error
		found, err = one[row](ctx, s, s.db, "janitors", micros(age))
		return err
	})
	if err != nil {
		return doctor.Janitors{}, err
	}
	return doctor.Janitors{
		OutboxEntries: found.Receipts, Oldest: time.Duration(found.Oldest) * time.Microsecond,
		LastTurn: time.Duration(found.Turned) * time.Microsecond, LostCommits: found.Setback.Time,
	}, nil
}
