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

// owner is the content of the lock file: the process that holds the lock.
type owner struct {
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// ownership makes one store the owner of the file.
type ownership struct{ *database }

// Own makes this store the owner of the file until the caller calls release or the process ends in any way. Only the
// owner may run tasks from the file. Own returns an ErrConflict if another store owns the file, in this process or in
// another one. The tables must exist.
//
// All earlier workers of the file have ended. So Own declares all live workers dead, and deletes all turns. The janitor
// then returns their tasks at once and does not wait for leases.
func (s *ownership) Own() (release func() error, err error) {
	const operation = "take the database"
	path := s.path + ".lock"
	if err := s.shareWithOwner(path); err != nil {
		return nil, fmt.Errorf("%s: %w", operation, fileError(path, err))
	}
	lock := s.lockFile(path)
	// A concurrent call of Served locks the lock file for a short time.
	ctx, cancel := context.WithTimeout(context.Background(), ownTimeout)
	defer cancel()
	locked, err := lock.TryLockContext(ctx, ownTimeout/50)
	if err != nil && !isContextEnd(err) {
		return nil, fmt.Errorf("%s: %w", operation, errors.Join(fileError(path, err), lock.Close()))
	}
	if !locked {
		_ = lock.Close()
		err := fmt.Errorf("%s: %w: %s is in use by %s", operation, holdfast.ErrConflict, s.path, lockHolder(path))
		return nil, holdfast.WithHint(err, holdfast.Advice("stop that process first, or use another file: only one process at a time may run the tasks of a file"))
	}
	lockInfo, err := os.Stat(path)
	if lockedInfo, statErr := lock.Stat(); err != nil || statErr != nil || !os.SameFile(lockInfo, lockedInfo) {
		_ = lock.Close()
		err := fmt.Errorf("%s: %w: %s was deleted or replaced just now", operation, holdfast.ErrUnavailable, path)
		return nil, holdfast.WithHint(err, holdfast.Hint{Kind: holdfast.HintRetry})
	}
	s.owned.Store(&lockInfo)
	release = sync.OnceValue(func() error {
		s.owned.Store(nil)
		return lock.Close()
	})
	if err = s.takeOver(operation, path); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}

// lockFile returns the lock file. It has the access rights of the database, so a user of the database may call Served.
func (d *database) lockFile(path string) *flock.Flock {
	return flock.New(path, flock.SetPermissions(d.opened.Mode().Perm()))
}

// shareWithOwner creates a missing lock file for the owner of the database, if this process runs as root. Otherwise the
// lock file would belong to root, and the owner of the database could not open it. SQLite does the same with its files.
func (d *database) shareWithOwner(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, d.opened.Mode().Perm())
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = file.Chmod(d.opened.Mode().Perm()) // despite the umask
	if user, group, ok := ownerOf(d.opened); ok {
		err = errors.Join(err, file.Chown(user, group))
	}
	return errors.Join(err, file.Close())
}

// checkLock returns an ErrUnavailable if this store owns the file, but its lock file was deleted or replaced. If
// another process locked the new lock file, both processes would run the same tasks.
func (d *database) checkLock() error {
	lockInfo := d.owned.Load()
	if lockInfo == nil {
		return nil
	}
	path := d.path + ".lock"
	if info, err := os.Stat(path); err != nil || !os.SameFile(info, *lockInfo) {
		err := fmt.Errorf("%w: %s was deleted or replaced, so another process may serve %s now; this process stores nothing", holdfast.ErrUnavailable, path, d.path)
		return holdfast.WithHint(err, holdfast.Advice("stop this process, and start it again if no other process serves the file"))
	}
	return nil
}

// ownTimeout is how long Own tries to get the lock.
const ownTimeout = 250 * time.Millisecond

// Served reports whether a store owns the file, in this process or in another one.
func (s *ownership) Served() (bool, error) {
	path := s.path + ".lock"
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	lock := s.lockFile(path)
	free, err := lock.TryRLock()
	if errors.Is(err, fs.ErrPermission) { // only an owner can deny this user the lock file
		return true, lock.Close()
	}
	if err = errors.Join(err, lock.Close()); err != nil {
		return false, fmt.Errorf("find the owner of the database: %w", fileError(path, err))
	}
	return !free, nil
}

// takeOver writes the owner into the lock file, and ends the workers of the previous owner.
func (s *ownership) takeOver(operation, path string) error {
	// This write uses another descriptor than the lock. If the system refuses the write, the lock file names no owner.
	if text, err := json.Marshal(owner{os.Getpid(), s.now()}); err == nil {
		if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
			s.log.WithError(err).Debug("owner not written into the lock file")
		}
	}
	_, err := s.change(context.Background(), operation, "own")
	return err
}

// lockHolder describes the process that holds the lock file.
func lockHolder(path string) string {
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
