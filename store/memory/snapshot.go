package memory

// Snapshot is a copy of all rows at one time. Later changes of the Store do not affect it. It may be restored
// repeatedly.
type Snapshot struct{ db database }

// Snapshot returns a copy of all rows.
func (s *Store) Snapshot() *Snapshot {
	snapshot := new(Snapshot)
	s.SnapshotInto(snapshot)
	return snapshot
}

// SnapshotInto replaces a snapshot that is no longer needed. It allocates less than Snapshot.
func (s *Store) SnapshotInto(snapshot *Snapshot) { s.db.copyTo(&snapshot.db) }

// IDs says whether ids that were assigned after a snapshot are assigned again when the snapshot is restored. The ids of
// workers never are.
type IDs bool

// The values of IDs.
const (
	IDsAgain IDs = false // they are assigned again, as by a standby that never received them
	IDsOnce  IDs = true  // they are never assigned again
)

// Restore makes the database equal to a snapshot, like a failover to a server that had not received the last commits.
// Open transactions and sessions end. Restore does not mean that the server was restarted: see Restarted.
func (s *Store) Restore(snapshot *Snapshot, ids IDs) {
	last := s.db.last
	snapshot.db.copyTo(&s.db)
	s.db.last.worker = max(s.db.last.worker, last.worker) // a real store does not assign them again either
	if ids == IDsOnce {
		given := &s.db.last
		given.task = max(given.task, last.task)
		given.entry, given.cancellation = max(given.entry, last.entry), max(given.cancellation, last.cancellation)
	}
	s.epoch++
	s.history++
	s.Stopped()
}
