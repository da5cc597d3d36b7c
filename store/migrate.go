package store

import (
	"context"
	"time"
)

// Migrations manages the schema.
type Migrations interface {
	// CheckSchema returns an ErrSchema if the schema is behind or ahead, nil if it is right.
	CheckSchema(ctx context.Context) error
	// MigrateUp applies what is missing and returns the versions it applied.
	MigrateUp(ctx context.Context) ([]Migration, error)
	// MigrateDown takes the newest applied version back; ErrNotFound if none is.
	MigrateDown(ctx context.Context) (Migration, error)
	// MigrationStatus lists every known version in order.
	MigrationStatus(ctx context.Context) ([]Migration, error)
	// Incarnation is an id made at the first migration. It names the broker marker that
	// tells a wiped broker from a full one.
	Incarnation(ctx context.Context) (string, error)
}

// Migration is one version of the schema.
type Migration struct {
	Version   int64
	Name      string
	Applied   bool
	AppliedAt time.Time
}
