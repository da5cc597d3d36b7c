package holdfast

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
)

// keyEncoding encodes keys in lower-case letters and digits, which headers, URLs and databases leave unchanged.
var keyEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// IdempotencyKey returns a key that is unique among the tasks of all stores: "task_", the id, "_" and a hash. It has at
// most 64 lower-case letters, digits and underscores. The key is the same for every attempt. It is computed from data
// that does not change between attempts, and is not stored. An imported task keeps the key from its original store.
// Payload and incarnation must be set, as they are in the task that a handler receives.
//
// The id alone is not unique. A store assigns the same ids again after a backup was restored, or after a replica that
// lagged was promoted. Other stores assign the same ids anyway. In these cases the creation time, the payload or the
// incarnation differs. A task with an edited payload has a new key, because its receiver must treat it as another
// request.
func (t Task) IdempotencyKey() string {
	if t.ImportedKey != "" {
		return t.ImportedKey
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

// WithIncarnation returns a copy of the task with the incarnation of its store. [Task.IdempotencyKey] uses the
// incarnation.
func (t Task) WithIncarnation(incarnation string) Task {
	t.incarnation = incarnation
	return t
}
