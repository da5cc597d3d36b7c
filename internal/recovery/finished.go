package recovery

import (
	"context"
	"database/sql"
	_ "embed" // finished.sql
	"errors"
	"fmt"
)

//go:embed finished.sql
var fillFinished string

// fill stores finished tasks, if Options want any. A file has none: Options speak of servers.
func (p *place) fill(ctx context.Context) (err error) {
	if p.embedded || p.o.Finished == 0 {
		return nil
	}
	db, err := p.database()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store finished tasks: %w", err)
	}
	defer func() { _ = conn.Close() }() // Close of db reports errors
	for _, statement := range []struct {
		text string
		args []any
	}{
		{text: "set search_path to " + p.Config.Database.Schema},
		{text: fillFinished, args: []any{p.o.Finished}},
		// The look for lost tickets has long passed tasks that finished days ago.
		{text: "update ticket_scan set through = (select max(id) from tasks)"},
		{text: "vacuum (analyze) tasks"},
	} {
		if _, err := conn.ExecContext(ctx, statement.text, statement.args...); err != nil {
			return fmt.Errorf("store finished tasks: %w", err)
		}
	}
	return nil
}

// database opens a pool of its own, with the store's driver.
func (p *place) database() (*sql.DB, error) { return sql.Open("postgres", p.o.DatabaseURL) }

// beside ends the description of a figure that was measured after fill.
func (p *place) beside() string {
	if p.embedded || p.o.Finished == 0 {
		return ""
	}
	return fmt.Sprintf(", beside %d finished tasks", p.o.Finished)
}
