package measure

import (
	"context"
	"database/sql"
	_ "embed" // finished.sql
	"errors"
	"fmt"
)

//go:embed finished.sql
var insertFinished string

// storeFinished stores Options.Finished finished tasks on servers. On a file it does nothing.
func (tb *testbed) storeFinished(ctx context.Context) (err error) {
	if tb.embedded || tb.o.Finished == 0 {
		return nil
	}
	db, err := tb.database()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("store finished tasks: %w", err)
	}
	defer func() { _ = conn.Close() }() // db.Close reports errors
	for _, statement := range []struct {
		text string
		args []any
	}{
		{text: "set search_path to " + tb.Config.Database.Schema},
		{text: insertFinished, args: []any{tb.o.Finished}},
		// In production, the scan for lost tickets has already passed tasks that finished days ago.
		{text: "update ticket_scan set through = (select max(id) from tasks)"},
		{text: "vacuum (analyze) tasks"},
	} {
		if _, err := conn.ExecContext(ctx, statement.text, statement.args...); err != nil {
			return fmt.Errorf("store finished tasks: %w", err)
		}
	}
	return nil
}

// database opens a new connection pool with the driver of the store. The caller closes it.
func (tb *testbed) database() (*sql.DB, error) { return sql.Open("postgres", tb.o.DatabaseURL) }

// finishedNote returns text for the end of Figure.What. It names the tasks that storeFinished has stored.
func (tb *testbed) finishedNote() string {
	if tb.embedded || tb.o.Finished == 0 {
		return ""
	}
	return fmt.Sprintf(", with %d finished tasks in the store", tb.o.Finished)
}
