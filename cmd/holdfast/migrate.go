package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
)

func (t migrateCommands) command() *cli.Command {
	return noun("migrate", "create, update or roll back the database schema",
		t.verb("up", "apply missing migrations",
			`Creates the schema if it does not exist. Several processes may run the command at the same time. If no
migration is missing, the command only reads. Workers may keep running: the command waits for open transactions without
blocking them.

Example:
  DATABASE_URL=postgres://localhost/app holdfast migrate up`,
			plain(t.up), outputFlag()),
		t.verb("down", "roll back the newest migration and delete its data",
			`The rollback of the first migration deletes all tasks. On a terminal the command asks for confirmation;
elsewhere it needs --yes. Stop every worker first.

Example:
  holdfast migrate down --yes`,
			plain(t.down), outputFlag(), yesFlag()),
		t.verb("status", "list the migrations and when they were applied",
			`The exit code is 7 if this build cannot run on the schema: the schema is older than the build, or more than
one version newer.

Example:
  holdfast migrate status -o json`,
			reads(t.tool, app.OpenStore, t.status), outputFlag()),
	)
}

// migration is a store.Migration as commands print it.
type migration struct {
	Version   int64     `json:"version"`
	Name      string    `json:"name"`
	Applied   bool      `json:"applied"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
}

func (t migrateCommands) print(c *cli.Context, found []store.Migration, none string) error {
	rows := make([]migration, len(found))
	for i, m := range found {
		rows[i] = migration(m)
	}
	return list(t.tool, c, "migrations", rows, none,
		column[migration]{"version", func(m migration) string { return fmt.Sprint(m.Version) }},
		column[migration]{"name", func(m migration) string { return m.Name }},
		column[migration]{"applied", func(m migration) string { return yes(m.Applied) }},
		column[migration]{"applied at", func(m migration) string { return t.stamp(m.AppliedAt) }},
	)
}

func (t migrateCommands) up(ctx context.Context, c *cli.Context) error {
	cfg, err := t.load(c)
	if err != nil {
		return err
	}
	log := t.quietLogger(cfg)
	log.SetLevel(max(log.GetLevel(), logrus.WarnLevel)) // if a migration waits for a lock, a warning names the holder of the lock
	applied, err := app.Migrate(ctx, cfg, log)
	if err != nil {
		return err
	}
	return stored(t.print(c, applied, "the schema is up to date"), "applied %s", plural(len(applied), "migration"))
}

func (t migrateCommands) down(ctx context.Context, c *cli.Context) error {
	if err := t.confirm(c, "roll back the newest migration and delete its data"); err != nil {
		return err
	}
	return t.withBackend(ctx, c, app.OpenStore, func(b *app.Backend) error {
		undone, err := b.Store.MigrateDown(ctx)
		if errors.Is(err, holdfast.ErrNotFound) {
			return &failure{err: errors.New("no migration is applied"), code: exitNotFound}
		}
		if err != nil {
			return err
		}
		return stored(t.print(c, []store.Migration{undone}, ""), "rolled back the migration %s", undone.Name)
	})
}

func (t migrateCommands) status(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	known, err := b.Store.MigrationStatus(ctx)
	if err != nil {
		return err
	}
	if err := t.print(c, known, "there are no migrations"); err != nil {
		return err
	}
	return b.Store.CheckSchema(ctx)
}
