package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/holdfastq/holdfast"
)

// owner is what the lock file says of the process that holds it.
type owner struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// ownership says which store runs the tasks of the file.
type ownership struct{ *database }

// Own makes this store the one that runs tasks from the file, until release is called or the process ends, however it
// ends. It is an ErrConflict if another store has the file, in this process or another one. The tables must be there.
//
// Whoever gets it knows that every worker of the file is gone. So all live runs are declared dead and all turns are free
// again: the janitor gives their tasks back at once instead of waiting for leases.
func (s *ownership) Own() (release func() error, err error) {
	const operation = "take the database"
	path := s.path + ".lock"
	lock := s.lockFile(path)
	// Served holds it for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), ownPatience)
	defer cancel()
	locked, err := lock.TryLockContext(ctx, ownPatience/50)
	if err != nil && !isEnd(err) {
		return nil, fmt.Errorf("%s: %w", operation, errors.Join(refused(path, err), lock.Close()))
	}
	if !locked {
		_ = lock.Close()
		err := fmt.Errorf("%s: %w: %s is in use by %s", operation, holdfast.ErrConflict, s.path, holder(path))
		return nil, holdfast.WithHint(err, holdfast.Advice("stop that one first, or use another file: one process at a time runs the tasks of a file"))
	}
	mark, err := os.Stat(path)
	if held, statErr := lock.Stat(); err != nil || statErr != nil || !os.SameFile(mark, held) {
		_ = lock.Close()
		err := fmt.Errorf("%s: %w: %s was deleted or replaced just now", operation, holdfast.ErrUnavailable, path)
		return nil, holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintRetry})
	}
	s.owned.Store(&mark)
	release = sync.OnceValue(func() error {
		s.owned.Store(nil)
		return lock.Close()
	})
	if err = s.takeOver(operation, path); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// lockFile has the rights of the database: who may use that one may see whether it is served.
func (d *database) lockFile(path string) *flock.Flock {
	return flock.New(path, flock.SetPermissions(d.opened.Mode().Perm()))
}

// disowned reports, as an error, that the lock file is not the one this store has locked. Another process may
// have locked the new one, and both would run the same tasks.
func (d *database) disowned() error {
	mark := d.owned.Load()
	if mark == nil {
		return nil
	}
	path := d.path + ".lock"
	if info, err := os.Stat(path); err != nil || !os.SameFile(info, *mark) {
		err := fmt.Errorf("%w: %s was deleted or replaced, so another process may serve %s by now; this one writes nothing any more", holdfast.ErrUnavailable, path, d.path)
		return holdfast.WithHint(err, holdfast.Advice("stop this process, and start it again if no other one serves the file"))
	}
	return nil
}

// ownPatience is how long Own tries.
const ownPatience = 250 * time.Millisecond

// Served reports whether a store, in this process or another one, has the file because of Own.
func (s *ownership) Served() (bool, error) {
	path := s.path + ".lock"
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock := s.lockFile(path)
	free, err := lock.TryRLock()
	if errors.Is(err, fs.ErrPermission) { // only who has it keeps a lock from others
		return true, lock.Close()
	}
	if err = errors.Join(err, lock.Close()); err != nil {
		return false, fmt.Errorf("look who has the database: %w", refused(path, err))
	}
	return !free, nil
}

// takeOver signs the lock file and ends the runs of the owner before.
func (s *ownership) takeOver(operation, path string) error {
	// Another descriptor than that of the lock, which some systems do not allow; then nobody learns who has it.
	if text, err := json.Marshal(owner{os.Getpid(), s.now()}); err == nil {
		if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
			s.log.WithError(err).Debug("the lock file cannot be signed")
		}
	}
	return s.write(context.Background(), operation, func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, "own", tx.now)
		return err
	})
}

// holder says who has the lock file.
func holder(path string) string {
	text, err := os.ReadFile(path)
	var o owner
	if err != nil || json.Unmarshal(text, &o) != nil || o.PID == 0 {
		return "another process"
	}
	if o.PID == os.Getpid() {
		return fmt.Sprintf("this process (pid %d) already", o.PID)
	}
	return fmt.Sprintf("the process with pid %d, since %s", o.PID, o.Started.Format(time.RFC3339))
}
