package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres/pgclient"
)

var _ doctor.StoreChecker = (*Store)(nil)

// oldest is the first major version of PostgreSQL that supports all statements.
const oldest = 13

// serverState is the configuration of a server, and of the connections to it.
type serverState struct {
	version    string
	parameters pgclient.Parameters // in the units of pg_settings
	standby    bool
	replicas   int64   // number of replicas that may lag behind
	synced     int64   // number of replicas that a commit waits for
	pooled     bool    // a connection pooler lends sessions for single transactions
	sessions   bool    // the store can keep sessions
	role       string  // the user of the connection
	rights     *rights // nil if there is no schema yet
}

// rights are the rights that the user lacks.
type rights struct {
	Role      string
	Schema    bool           // the user may not use the schema
	Tables    pq.StringArray // tables that the user may not read or write
	Sequences pq.StringArray // sequences that the user may not use
}

// Settings implements doctor.StoreChecker.
func (s *Store) Settings(ctx context.Context) ([]doctor.Check, error) {
	k := serverState{pooled: s.client.Pooled(), sessions: s.client.KeepsSessions(), role: s.client.User()}
	err := s.do(ctx, "read the settings", func() error {
		var err error
		if k.parameters, err = s.client.ReadParameters(ctx, "server_version", "fsync", "full_page_writes", "synchronous_commit",
			"synchronous_standby_names", "default_transaction_read_only"); err != nil {
			return err
		}
		k.version = k.parameters["server_version"]
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

func (k serverState) versionCheck() doctor.Check {
	check := doctor.Check{Name: "store version", Severity: doctor.OK, Detail: "PostgreSQL " + k.version}
	major := strings.IndexFunc(k.version+".", func(r rune) bool { return r < '0' || r > '9' }) // as in 16.4 or 18beta1
	if n, err := strconv.Atoi(k.version[:major]); err == nil && n < oldest {
		check.Severity = doctor.Failed
		check.Remedy = holdfast.Advice(fmt.Sprintf("use PostgreSQL %d or later", oldest))
	}
	return check
}

func (k serverState) primaryCheck() doctor.Check {
	check := doctor.Check{Name: "store primary", Severity: doctor.OK, Detail: "this is the primary"}
	switch {
	case k.standby:
		check.Severity, check.Detail = doctor.Failed, "this is a standby, which cannot store tasks"
		check.Remedy = holdfast.Hint{Kind: holdfast.HintPrimary}
	case k.parameters["default_transaction_read_only"] == "on":
		check.Severity, check.Detail = doctor.Failed, "transactions are read-only by default"
		check.Remedy = holdfast.Advice("find out why default_transaction_read_only is on, then set it to off for this user and database")
	}
	return check
}

func (k serverState) durabilityCheck() doctor.Check {
	check := doctor.Check{Name: "store durability", Severity: doctor.OK, Detail: "the server has written a commit to disk when it returns"}
	commit, standbys := k.parameters["synchronous_commit"], k.parameters["synchronous_standby_names"]
	set := func(severity doctor.Severity, detail, remedy string) {
		check.Severity, check.Detail, check.Remedy = severity, detail, holdfast.Advice(remedy)
	}
	switch {
	case k.parameters["fsync"] == "off":
		set(doctor.Failed, "fsync = off: a crash of the machine loses commits and can damage the database", "set fsync = on in postgresql.conf and reload")
	case commit == "off":
		set(doctor.Failed, "synchronous_commit = off: a crash of the server loses the tasks accepted last", "set synchronous_commit = on for this user, database or server")
	case k.parameters["full_page_writes"] == "off":
		set(doctor.Warning, "full_page_writes = off: a crash of the machine can damage the database", "set full_page_writes = on, unless the file system never tears a page")
	case standbys != "" && commit == "local":
		set(doctor.Warning, "synchronous_commit = local: commits do not wait for the synchronous replicas", "set synchronous_commit = on, or never promote a replica")
	case k.replicas > 0 && k.synced == 0:
		set(doctor.Warning, fmt.Sprintf("commits wait for no replica (%d may lag behind): promoting one can lose accepted tasks and run finished tasks again", k.replicas),
			"name a replica in synchronous_standby_names, and promote only that replica")
	}
	return check
}

func (k serverState) poolerCheck() doctor.Check {
	check := doctor.Check{Name: "store pooler", Severity: doctor.OK, Detail: "each connection has a session of its own"}
	if !k.pooled {
		return check
	}
	check.Detail = "a connection pooler lends sessions for single transactions and tracks prepared statements"
	if missing := k.parameters.Lacking(); len(missing) > 0 {
		check.Severity = doctor.Warning
		check.Detail += "; the sessions lack " + strings.Join(missing, ", ")
		check.Remedy = holdfast.Hint{Kind: holdfast.HintSessionSettings, Arg: pq.QuoteIdentifier(k.role)}
	}
	return check
}

func (k serverState) presenceCheck() doctor.Check {
	check := doctor.Check{Name: "store presence", Severity: doctor.OK, Detail: "the store has sessions of its own, so it detects the end of a worker process at once"}
	if k.pooled && !k.sessions {
		check.Severity, check.Detail = doctor.Warning, "presence is off, because a connection pooler keeps no sessions; a dead worker is detected when its lease expires"
		check.Remedy = holdfast.Hint{Kind: holdfast.HintDirectURL}
	}
	return check
}

// rightsCheck reports the rights that are missing, and the statements that grant them.
func (k serverState) rightsCheck(schema string) doctor.Check {
	check := doctor.Check{Name: "store rights", Severity: doctor.OK}
	if k.rights == nil {
		check.Severity, check.Detail = doctor.Skipped, fmt.Sprintf("there is no schema %q yet", schema)
		return check
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
		check.Detail = k.rights.Role + " may read and write all tables"
		return check
	}
	check.Severity = doctor.Failed
	check.Detail = k.rights.Role + " may not " + strings.Join(missing, ", nor ")
	check.Remedy = holdfast.Hint{Kind: holdfast.HintGrant, Arg: strings.Join(grants, "; ")}
	return check
}

// Janitors implements doctor.StoreChecker.
func (s *Store) Janitors(ctx context.Context, age time.Duration) (doctor.Janitors, error) {
	rows, err := list[doctor.Janitors](ctx, s, "read the janitors' progress", "janitors", micros(age))
	if err != nil {
		return doctor.Janitors{}, err
	}
	rows[0].Failing, err = list[store.DutyFailure](ctx, s, "read the failing duties", "failing_duties")
	return rows[0], err
}
