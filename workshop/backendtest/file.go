package backendtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfastq/holdfast/store/sqlite"
)

// NewFile returns the path of a new file with the tables of this build. It is like a file that this process has just
// created, but much cheaper with the race detector, which makes the migrations take two seconds.
func NewFile(t testing.TB) (path string) {
	t.Helper()
	file, err := emptyFile()
	if err == nil {
		path = filepath.Join(t.TempDir(), "holdfast.db")
		err = os.WriteFile(path, file, 0o600)
	}
	if err == nil {
		err = newIncarnation(t.Context(), path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// emptyFile returns the content of a file without tasks.
var emptyFile = sync.OnceValues(func() (file []byte, err error) {
	folder, err := os.MkdirTemp("", "holdfast-empty-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "holdfast.db")
	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: path, Create: true})
	if err != nil {
		return nil, err
	}
	_, err = s.MigrateUp(context.Background())
	if closed := s.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// newIncarnation makes the file a store of its own: two stores with one incarnation would be copies of each other.
func newIncarnation(ctx context.Context, path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	_, err = db.ExecContext(ctx, "update meta set value = ? where key = 'incarnation'", hex.EncodeToString(random))
	return err
}
