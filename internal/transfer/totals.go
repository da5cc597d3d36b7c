package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"

	"github.com/holdfastq/holdfast"
)

// Totals count the contents of an export.
type Totals struct {
	States   map[holdfast.State]StateTotal `json:"states"` // the states that have tasks
	Attempts int64                         `json:"attempts"`
	Keys     KeyTotal                      `json:"kept_keys,omitzero"`
	LastID   holdfast.TaskID               `json:"last_id,omitzero"` // the highest id that the store has ever assigned
}

// KeyTotal counts the unique keys that the store keeps for a time.
type KeyTotal struct {
	Keys   int64  `json:"keys"`
	SHA256 string `json:"sha256"` // of the lines of the keys with their line feeds
}

// StateTotal counts the tasks in one state.
type StateTotal struct {
	Tasks  int64  `json:"tasks"`
	SHA256 string `json:"sha256"` // of the task lines with their line feeds, in the order of the ids
}

// Tasks returns the number of tasks.
func (t Totals) Tasks() int64 {
	total := int64(0)
	for _, state := range t.States {
		total += state.Tasks
	}
	return total
}

// differences describes how actual differs from t. It ignores the last id and the unique keys. The result is empty if
// there is no difference.
func (t Totals) differences(actual Totals) string {
	var list []string
	for _, state := range holdfast.States() {
		want, got := t.States[state], actual.States[state]
		switch {
		case want.Tasks != got.Tasks:
			list = append(list, fmt.Sprintf("%d %s tasks instead of %d", got.Tasks, state, want.Tasks))
		case want.SHA256 != got.SHA256:
			list = append(list, fmt.Sprintf("%s tasks with another checksum", state))
		}
	}
	if t.Attempts != actual.Attempts {
		list = append(list, fmt.Sprintf("%d attempts instead of %d", actual.Attempts, t.Attempts))
	}
	return strings.Join(list, ", ")
}

// counter computes totals from lines.
type counter struct {
	tasks    map[holdfast.State]int64
	hashes   map[holdfast.State]hash.Hash
	attempts int64
	keys     int64
	keyHash  hash.Hash
}

func newCounter() *counter {
	return &counter{tasks: make(map[holdfast.State]int64), hashes: make(map[holdfast.State]hash.Hash), keyHash: sha256.New()}
}

// addKey counts a unique key. text is its line without the line feed.
func (c *counter) addKey(text []byte) {
	c.keys++
	_, _ = c.keyHash.Write(text) // Write of a hash never returns an error
	_, _ = c.keyHash.Write([]byte{'\n'})
}

// add counts a task. text is the line of the task without the line feed.
func (c *counter) add(t *taskLine, text []byte) {
	if c.hashes[t.State] == nil {
		c.hashes[t.State] = sha256.New()
	}
	c.tasks[t.State]++
	c.attempts += int64(len(t.Attempts))
	_, _ = c.hashes[t.State].Write(text) // Write of a hash never returns an error
	_, _ = c.hashes[t.State].Write([]byte{'\n'})
}

func (c *counter) totals() Totals {
	t := Totals{States: make(map[holdfast.State]StateTotal), Attempts: c.attempts}
	for state, n := range c.tasks {
		t.States[state] = StateTotal{Tasks: n, SHA256: hex.EncodeToString(c.hashes[state].Sum(nil))}
	}
	if c.keys > 0 {
		t.Keys = KeyTotal{c.keys, hex.EncodeToString(c.keyHash.Sum(nil))}
	}
	return t
}
