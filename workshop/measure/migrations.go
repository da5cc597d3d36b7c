package measure

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast/store"
)

// measureMigrations applies or reverts migrations while another transaction reads all tables, as a backup does. It
// measures the slowest renewal of a lease during that time.
func measureMigrations(ctx context.Context, tb *testbed) ([]Figure, error) {
	const reading = 3 * time.Second // long enough for several attempts of the migration
	f := Figure{Name: "A migration waits for a backup", What: fmt.Sprintf("longest renewal of a lease while migrations wait %s for an open transaction and then run", reading), Unit: seconds}
	db, err := tb.database()
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // its error does not matter, because the schema is dropped next
	worker, err := tb.Store.RegisterWorker(ctx, store.WorkerInfo{Name: "renews", Host: "here", Concurrency: 1}, time.Hour)
	if err != nil {
		return nil, err
	}
	known, err := tb.Store.MigrationStatus(ctx)
	if err != nil {
		return nil, err
	}
	down := func(ctx context.Context) error {
		for range len(known) - 1 {
			if _, err := tb.Store.MigrateDown(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	up := func(ctx context.Context) error {
		_, err := tb.Store.MigrateUp(ctx)
		return err
	}
	// This statement is valid in all versions of the schema.
	renew := fmt.Sprintf("update %s.workers set renewed_at = now(), lease_until = now() + interval '1 hour' where id = %d", tb.Config.Database.Schema, worker)
	for n := range tb.o.Trials {
		move := down
		if n%2 == 1 {
			move = up
		}
		longest, err := tb.renewals(ctx, db, renew, func(ctx context.Context) error { return tb.behindReader(ctx, db, reading, move) })
		if err != nil {
			return nil, err
		}
		f.Samples = append(f.Samples, longest.Seconds())
	}
	return []Figure{f}, up(ctx)
}

// behindReader runs a migration while another transaction has a read lock on all tables. It ends that transaction after
// the duration reading. It returns an error if the migration ends before that.
func (tb *testbed) behindReader(ctx context.Context, db *sql.DB, reading time.Duration, migrate func(context.Context) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var tables string
	if err := tx.QueryRowContext(ctx, "select string_agg(quote_ident(schemaname) || '.' || quote_ident(tablename), ', ') from pg_tables where schemaname = $1",
		tb.Config.Database.Schema).Scan(&tables); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "lock table "+tables+" in access share mode"); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- migrate(ctx) }()
	select {
	case err := <-done:
		if err == nil {
			err = fmt.Errorf("the migrations did not wait for the transaction that reads %d tables", 1+strings.Count(tables, ","))
		}
		return err
	case <-time.After(reading):
	}
	_ = tx.Rollback()
	return <-done
}

// renewals executes a statement repeatedly until do returns. It returns the duration of the slowest execution.
func (tb *testbed) renewals(ctx context.Context, db *sql.DB, renew string, do func(context.Context) error) (longest time.Duration, err error) {
	renewing, stop := context.WithCancel(ctx)
	var failed error
	var group sync.WaitGroup
	group.Go(func() {
		for renewing.Err() == nil {
			began := time.Now()
			if _, err := db.ExecContext(ctx, renew); err != nil {
				failed = fmt.Errorf("renew: %w", err)
				return
			}
			longest = max(longest, time.Since(began))
		}
	})
	err = do(ctx)
	stop()
	group.Wait()
	if err == nil {
		err = failed
	}
	return longest, err
}
