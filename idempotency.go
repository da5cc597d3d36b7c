package holdfast

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
)

// keyEncoding writes keys in lower-case letters and digits, which no header, URL or database changes.
var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// IdempotencyKey returns the key that tells a task from every other task of every store: "task_", its id, "_" and a hash, at
// most 64 lower-case letters, digits and underscores. The key is the same at every attempt and is not stored: it is computed
// from what does not change between attempts. A task that came from another store has the key that it had there. A
// handler's task has what the key is computed from: its payload and the incarnation of its store.
//
// The id alone is no key: after a restored backup, or the promotion of a replica that was behind, a store gives out the
// same ids again, and another store gives them out anyway. Then the time of creation, the payload or the incarnation
// differs. A task with an edited payload has a new key, because its receiver must take it as another request.
func (t Task) IdempotencyKey() string {
	if t.Key != "" {
		return t.Key
	}
	input := make([]byte, 0, 128)
	input = append(strconv.AppendInt(input, int64(len(t.incarnation)), 10), ' ')
	input = append(append(input, t.incarnation...), '\n')
	input = append(strconv.AppendInt(input, int64(t.ID), 10), ' ')
	input = append(strconv.AppendInt(input, t.CreatedAt.UnixMicro(), 10), '\n')
	hash := sha256.New()
	_, _ = hash.Write(input) // a hash returns no error
	_, _ = hash.Write(t.Payload)
	var sum [sha256.Size]byte
	key := append(make([]byte, 0, 64), "task_"...)
	key = append(strconv.AppendInt(key, int64(t.ID), 10), '_')
	return string(keyEncoding.AppendEncode(key, hash.Sum(sum[:0])[:16]))
}

// WithIncarnation returns the task with the incarnation of its store, from which [Task.IdempotencyKey] computes the key.
func (t Task) WithIncarnation(incarnation string) Task {
	t.incarnation = incarnation
	return t
}
