package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// CheckSchema implements store.Migrations.
func (c *Client) CheckSchema(ctx context.Context) error {
	return c.do(ctx, Step{Op: "CheckSchema"}, func(time.Time) error { return nil })
}

// status describes the only migration, which creates all tables.
func (d *database) status() store.Migration {
	return store.Migration{Version: 1, Name: "tables", Applied: !d.migratedAt.IsZero(), AppliedAt: d.migratedAt}
}

// MigrateUp implements store.Migrations. It creates the tables unless they exist.
func (c *Client) MigrateUp(ctx context.Context) ([]store.Migration, error) {
	var applied []store.Migration
	err := c.do(ctx, Step{Op: "MigrateUp", tableless: true}, func(now time.Time) error {
		if c.store.db.migratedAt.IsZero() {
			c.store.db.migrate(now)
			applied = append(applied, c.store.db.status())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return applied, nil
}

// MigrateDown implements store.Migrations. It drops the tables with their contents.
func (c *Client) MigrateDown(ctx context.Context) (store.Migration, error) {
	var down store.Migration
	err := c.do(ctx, Step{Op: "MigrateDown", tableless: true}, func(time.Time) error {
		d := &c.store.db
		if d.migratedAt.IsZero() {
			return fmt.Errorf("%w: no migration is applied", holdfast.ErrNotFound)
		}
		*d = database{generation: d.generation}
		down = d.status()
		return nil
	})
	if err != nil {
		return store.Migration{}, err
	}
	return down, nil
}

// MigrationStatus implements store.Migrations.
func (c *Client) MigrationStatus(ctx context.Context) ([]store.Migration, error) {
	var status store.Migration
	err := c.do(ctx, Step{Op: "MigrationStatus", tableless: true}, func(time.Time) error {
		status = c.store.db.status()
		return nil
	})
	if err != nil {
		return nil, err
	}
	return []store.Migration{status}, nil
}

// Incarnation implements store.Migrations. The incarnation counts how often the tables were created.
func (c *Client) Incarnation(ctx context.Context) (string, error) {
	id := ""
	err := c.do(ctx, Step{Op: "Incarnation"}, func(time.Time) error {
		id = fmt.Sprint("memory-", c.store.db.generation)
		return nil
	})
	if err != nil {
		return "", err
	}
	return id, nil
}
