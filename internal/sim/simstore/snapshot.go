package simstore

// Snapshot is all that was stored at one moment. It does not change with the Store and may be restored more than once.
type Snapshot struct{ db database }

// Snapshot copies the rows.
func (s *Store) Snapshot() *Snapshot {
	snapshot := new(Snapshot)
	s.SnapshotInto(snapshot)
	return snapshot
}

// SnapshotInto replaces a snapshot that is not needed any more, which costs less than a new one.
func (s *Store) SnapshotInto(snapshot *Snapshot) { s.db.copyTo(&snapshot.db) }

// IDs says what becomes of ids that were given out after a snapshot that is restored.
type IDs bool

// What can become of them.
const (
	IDsAgain IDs = false // they are given out again, as by a standby that had not heard of them
	IDsOnce  IDs = true  // they are never used again
)

// Restore makes the database what it was, as a failover to a server does that had not received the last commits. Open
// transactions and sessions are gone. Whether the server was started just now is another question: see Restarted.
func (s *Store) Restore(snapshot *Snapshot, ids IDs) {
	last := s.db.last
	snapshot.db.copyTo(&s.db)
	if ids == IDsOnce {
		given := &s.db.last
		given.task, given.run = max(given.task, last.task), max(given.run, last.run)
		given.receipt, given.cancellation = max(given.receipt, last.receipt), max(given.cancellation, last.cancellation)
	}
	s.epoch++
	s.history++
	s.Stopped()
}
