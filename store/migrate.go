package store

import (
	"context"
	"time"
)

// Migrations manages the database schema.
type Migrations interface {
	// CheckSchema returns an ErrSchema if this build cannot run on the version of the schema.
	CheckSchema(ctx context.Context) error
	// MigrateUp applies the missing migrations and returns them.
	MigrateUp(ctx context.Context) ([]Migration, error)
	// MigrateDown reverts the latest applied migration and returns it. Returns ErrNotFound if none is applied.
	MigrateDown(ctx context.Context) (Migration, error)
	// MigrationStatus returns all known migrations in order.
	MigrationStatus(ctx context.Context) ([]Migration, error)
}

// Migration is one version of the schema.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time
}
