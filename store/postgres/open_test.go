package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

func TestOpenInvalid(t *testing.T) {
	t.Parallel()
	const url = "postgres://user:hunter2@127.0.0.1:1/jobs?sslmode=disable"
	for name, o := range map[string]postgres.Options{
		"no URL":           {},
		"an upper case":    {URL: url, Schema: "Jobs"},
		"an injection":     {URL: url, Schema: `a"; drop table x`},
		"a system schema":  {URL: url, Schema: "pg_jobs"},
		"a long schema":    {URL: url, Schema: strings.Repeat("a", 64)},
		"a negative limit": {URL: url, MaxConns: -1},
	} {
		_, err := postgres.Open(t.Context(), o)
		if !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v, want an ErrInvalid", name, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q shows the password", name, err)
		}
	}
}

func TestCloseTwice(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Workers(context.Background(), true); err == nil {
		t.Error("a call of a closed store succeeded")
	}
}

// If the schema is several versions ahead, this build must neither use it nor migrate it.
func TestSchemaAhead(t *testing.T) {
	t.Parallel()
	address, name := pgtest.Schema(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: name})
	if _, err := pgtest.Admin(t).Exec("insert into " + name + ".migrations (version_id, is_applied) values (999, true)"); err != nil {
		t.Fatal(err)
	}
	_, upErr := s.MigrateUp(t.Context())
	_, downErr := s.MigrateDown(t.Context())
	for operation, err := range map[string]error{"check": s.CheckSchema(t.Context()), "up": upErr, "down": downErr} {
		if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 999") || holdfast.HintOf(err).Kind != holdfast.HintUpgrade {
			t.Errorf("%s: %v", operation, err)
		}
	}
}

// If the user may not create the schema, the hint is the statement that permits it.
func TestSchemaNotPermitted(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("role", "pg_monitor") // a role that exists on every server and owns nothing
	u.RawQuery = query.Encode()
	_, err = pgtest.Connect(t, postgres.Options{URL: u.String(), Schema: pgtest.Name(t)}).MigrateUp(t.Context())
	hint := holdfast.HintOf(err).Arg
	if err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(hint, "grant create on database ") || !strings.HasSuffix(hint, " to pg_monitor") {
		t.Errorf("got %v, %q", err, hint)
	}
}

func TestDropSchemaLeavesNothingAndNoOtherSchema(t *testing.T) {
	t.Parallel()
	s, other := pgtest.Open(t), pgtest.Open(t)
	if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "queue"}}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := pgtest.Admin(t).Exec("create table " + s.Schema() + ".mine (id int)"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.DropSchema(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var left int
	if err := pgtest.Admin(t).QueryRow("select count(*) from pg_namespace where nspname = $1", s.Schema()).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d schemas are left, %v", left, err)
	}
	if err := other.CheckSchema(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Insert(t.Context(), []holdfast.NewTask{{Type: "t", Queue: "queue"}}, 0); err != nil {
		t.Errorf("insert into the recreated schema: %v", err)
	}
}

// Before the first migration there is no schema.
func TestSchemaMissing(t *testing.T) {
	t.Parallel()
	s := pgtest.Connect(t, postgres.Options{URL: pgtest.URL(t), Schema: pgtest.Name(t)})
	err := s.CheckSchema(t.Context())
	if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 0") || holdfast.HintOf(err).Kind != holdfast.HintMigrate {
		t.Errorf("check: %v", err)
	}
	if _, err := s.QueueNames(t.Context()); !errors.Is(err, store.ErrSchema) || holdfast.HintOf(err).Kind != holdfast.HintMigrate {
		t.Errorf("list queues: %v", err)
	}
	if status, err := s.MigrationStatus(t.Context()); err != nil || len(status) == 0 || status[0].Applied {
		t.Errorf("the status is %+v, %v", status, err)
	}
}
