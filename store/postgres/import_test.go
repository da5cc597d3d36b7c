package postgres_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
	"github.com/holdfastq/holdfast/store/storetest"
)

func TestImporter(t *testing.T) {
	t.Parallel()
	storetest.RunImporter(t, func(t *testing.T) storetest.Target { return pgtest.Open(t) })
}

var anImport = store.Import{Source: "s", Transfer: "v", From: "/a/file.db"}

// recordsOf makes n records of tasks that are ready, in a lane of their own.
func recordsOf(n int) []store.Record {
	now := time.Now().Truncate(time.Microsecond)
	records := make([]store.Record, n)
	for i := range records {
		records[i].Task = holdfast.Task{ID: holdfast.TaskID(i + 1), Type: "t", Lane: "theirs", State: holdfast.Ready, Attempt: 1, MaxAttempts: 1,
			Payload: []byte("1"), NextRunAt: now, CreatedAt: now}
	}
	return records
}

// staged begins an import and stages the records.
func staged(t *testing.T, s *postgres.Store, records []store.Record) {
	t.Helper()
	if _, err := s.BeginImport(t.Context(), anImport, holdfast.TaskID(len(records)), store.IntoEmpty); err != nil {
		t.Fatal(err)
	}
	if err := s.Stage(t.Context(), anImport.Transfer, records); err != nil {
		t.Fatal(err)
	}
}

// What the server cannot hold is named, and what came before it is stored.
func TestStageNamesTheTaskItCannotHold(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	records := recordsOf(5)
	records[3].Payload = []byte("{")
	staged(t, s, nil)
	err := s.Stage(t.Context(), "v", records)
	failure, ok := errors.AsType[*store.RecordError](err)
	if !ok || failure.Task != 4 || !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), "task 4: ") {
		t.Fatal(err)
	}
	if got, err := s.Staged(t.Context(), "v"); err != nil || got.Last != 3 {
		t.Errorf("staged: %+v, %v", got, err)
	}
}

// What a constraint or a trigger refuses is in one of the tasks that are named.
func TestStageNamesTheBatch(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	staged(t, s, nil)
	records := recordsOf(5)
	records[3].State = holdfast.Running
	if err := s.Stage(t.Context(), "v", records); err == nil || !strings.Contains(err.Error(), "tasks 1 to 5: ") {
		t.Errorf("a constraint: %v", err)
	}
	admin := pgtest.Admin(t)
	for _, statement := range []string{
		"create function %[1]s.refuse() returns trigger language plpgsql as $$ begin raise 'no'; end $$",
		"create trigger refuse before insert on %[1]s.import_tasks execute function %[1]s.refuse()",
	} {
		if _, err := admin.Exec(fmt.Sprintf(statement, s.Schema())); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Stage(t.Context(), "v", recordsOf(2)); err == nil || !strings.Contains(err.Error(), "tasks 1 to 2: ") {
		t.Errorf("a trigger: %v", err)
	}
}

// insertUncommitted inserts a task in a caller's transaction and leaves it open.
func insertUncommitted(t *testing.T, s *postgres.Store, unique string) (*sql.Tx, holdfast.TaskID) {
	t.Helper()
	tx, err := callersDB(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	inserted, err := s.InsertTx(t.Context(), tx, []holdfast.NewTask{{Type: "t", Lane: holdfast.DefaultLane, MaxAttempts: 1, Unique: unique}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return tx, inserted.Tasks[0].ID
}

// A transaction that has inserted a task and is still open holds BeginImport up.
func TestBeginImportWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	s := named(t, postgres.Options{})
	tx, id := insertUncommitted(t, s, "")
	begun := make(chan error, 1)
	go func() {
		i, err := s.BeginImport(t.Context(), anImport, 5, store.IntoExisting)
		if err == nil && i.Shift < int64(id) {
			err = fmt.Errorf("%+v", i)
		}
		begun <- err
	}()
	eventually(t, "the import waits", waits(t, s, 1))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-begun; err != nil {
		t.Error(err)
	}
}

// It does not wait for ever, and says for what it has waited.
func TestBeginImportGivesUp(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	insertUncommitted(t, s, "")
	_, err := s.BeginImportOnce(t.Context(), anImport, 5, store.IntoExisting)
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "a transaction on "+s.Schema()+".tasks has been open for long: look for it in pg_stat_activity") {
		t.Error(err)
	}
	if _, err := s.Import(t.Context(), anImport.Transfer); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("afterwards: %v", err)
	}
}

// waits reports whether n statements of the store wait for locks.
func waits(t *testing.T, s *postgres.Store, n int) func() error {
	return func() error {
		if got := waiting(t, s); got < n {
			return fmt.Errorf("%d statements wait", got)
		}
		return nil
	}
}

// A copy of the source comes while the import of the other one is being committed. It must not delete the
// record of it, or everything could be imported twice.
func TestBeginImportMeetsACommit(t *testing.T) {
	t.Parallel()
	s := named(t, postgres.Options{})
	records := recordsOf(3000)
	records[2999].Unique = "key"
	staged(t, s, records)
	tx, _ := insertUncommitted(t, s, "key") // holds the commit up at its last task
	committed, begun := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := s.CommitImport(t.Context(), anImport.Transfer)
		committed <- err
	}()
	eventually(t, "the commit waits", waits(t, s, 1))
	// Whoever stores a task in the same new lane need not wait for the end of it.
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.Insert(soon, []holdfast.NewTask{{Type: "t", Lane: "theirs", MaxAttempts: 1}}, 0); err != nil {
		t.Errorf("insert beside the commit: %v", err)
	}
	go func() {
		again := anImport
		again.Transfer = "w"
		_, err := s.BeginImport(t.Context(), again, 3000, store.IntoExisting)
		begun <- err
	}()
	eventually(t, "the other import waits for the commit", waits(t, s, 2))
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if err := <-begun; !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "copy") {
		t.Errorf("the other import: %v", err)
	}
	if i, err := s.Import(t.Context(), anImport.Transfer); err != nil || !i.Committed() || i.Tasks != 3000 {
		t.Errorf("the record is %+v, %v", i, err)
	}
}

// The tables of imports are not dropped while they say something.
func TestMigrateDownKeepsImports(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	staged(t, s, recordsOf(2))
	if m, err := s.MigrateDown(t.Context()); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "the tasks of /a/file.db are being carried to schema") {
		t.Errorf("under way: %+v, %v", m, err)
	}
	if _, err := s.CommitImport(t.Context(), anImport.Transfer); err != nil {
		t.Fatal(err)
	}
	if m, err := s.MigrateDown(t.Context()); !errors.Is(err, holdfast.ErrConflict) || !strings.Contains(err.Error(), "record that the tasks of /a/file.db were carried here at 20") {
		t.Errorf("committed: %+v, %v", m, err)
	}
	if _, err := s.Import(t.Context(), anImport.Transfer); err != nil {
		t.Error(err)
	}
}

// The password need not be in the URL, where everybody on the machine can read it.
func TestPasswordFromTheEnvironment(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	got := make(chan string, 4)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			got <- askPassword(conn)
		}
	}()
	address := "postgres://somebody@" + server.Addr().String() + "/app?sslmode=disable"
	check := func(want string) {
		t.Helper()
		if _, err := postgres.Open(t.Context(), postgres.Options{URL: address}); err == nil {
			t.Error("opened")
		}
		if password := <-got; password != want {
			t.Errorf("the password is %q, want %q", password, want)
		}
		for len(got) > 0 {
			<-got
		}
	}
	t.Setenv("PGPASSWORD", "of the environment")
	check("of the environment")
	t.Setenv("PGPASSWORD", "")
	file := filepath.Join(t.TempDir(), "pgpass")
	if err := os.WriteFile(file, []byte("127.0.0.1:*:app:somebody:of the file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGPASSFILE", file)
	check("of the file")
}

// askPassword is a server that asks for a password in the clear, and hangs up.
func askPassword(conn net.Conn) string {
	defer conn.Close()
	message := func() string {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return err.Error()
		}
		text := make([]byte, binary.BigEndian.Uint32(size[:])-4)
		_, _ = io.ReadFull(conn, text)
		return string(text)
	}
	message()
	_, _ = conn.Write([]byte{'R', 0, 0, 0, 8, 0, 0, 0, 3})
	_, _ = io.ReadFull(conn, make([]byte, 1)) // the kind of the answer
	return strings.TrimRight(message(), "\x00")
}
