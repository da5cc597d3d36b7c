package postgres_test

import (
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

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
	"github.com/holdfastq/holdfast/workshop/storetest"
)

func TestTransfer(t *testing.T) {
	t.Parallel()
	storetest.RunTransfer(t, func(t *testing.T) (here, elsewhere storetest.Transferable) {
		first := pgtest.Open(t)
		second, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.URL(t), Schema: first.Schema()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = second.Close() })
		return first, second
	})
}

// insertUncommitted inserts a task in a caller's transaction and leaves it open.
func insertUncommitted(t *testing.T, s *postgres.Store, unique string) (*sql.Tx, holdfast.TaskID) {
	t.Helper()
	tx, err := callersDB(t).Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	inserted, err := s.InsertTx(t.Context(), tx, []holdfast.NewTask{{Type: "t", Queue: holdfast.DefaultQueue, MaxAttempts: 1, Unique: unique}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return tx, inserted.Tasks[0].ID
}

// An export waits for open transactions that store tasks.
func TestExportWaitsForOpenTransactions(t *testing.T) {
	t.Parallel()
	s := named(t, postgres.Options{})
	tx, id := insertUncommitted(t, s, "")
	exported := make(chan error, 1)
	go func() {
		var seen []holdfast.TaskID
		last, err := s.Export(t.Context(), func(r store.Record) error {
			seen = append(seen, r.ID)
			return nil
		})
		if err == nil && (len(seen) != 1 || seen[0] != id || last != id) {
			err = fmt.Errorf("exported %v, the last id is %s", seen, last)
		}
		exported <- err
	}()
	eventually(t, "the export waits", waits(t, s, 1))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-exported; err != nil {
		t.Error(err)
	}
}

// If a transaction stays open, an export fails with an error that says why.
func TestExportGivesUp(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t)
	insertUncommitted(t, s, "")
	_, err := s.Export(t.Context(), func(store.Record) error { return nil })
	if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "a transaction on "+s.Schema()+".tasks has been open for long") ||
		!strings.Contains(holdfast.HintOf(err).Arg, "pg_stat_activity") {
		t.Error(err)
	}
}

// waits returns a function that returns an error until n statements of the store wait for locks.
func waits(t *testing.T, s *postgres.Store, n int) func() error {
	return func() error {
		if got := waiting(t, s); got < n {
			return fmt.Errorf("%d statements wait", got)
		}
		return nil
	}
}

// The password can be in the environment or in a file. All users of the machine can read a URL.
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
			got <- requestPassword(conn)
		}
	}()
	address := "postgres://somebody@" + server.Addr().String() + "/app?sslmode=disable"
	check := func(want string) {
		t.Helper()
		if _, err := postgres.Open(t.Context(), postgres.Options{URL: address}); err == nil {
			t.Error("Open succeeded")
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

// requestPassword acts as a server that requests a clear-text password. It returns the password and closes the
// connection.
func requestPassword(conn net.Conn) string {
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
	_, _ = io.ReadFull(conn, make([]byte, 1)) // the type of the message
	return strings.TrimRight(message(), "\x00")
}
