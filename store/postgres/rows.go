package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/lib/pq"
)

// pairs lists tickets as the two columns that unnest joins again.
func pairs(tickets []message.Ticket) (tasks pq.Int64Array, attempts pq.Int64Array) {
	tasks, attempts = make(pq.Int64Array, len(tickets)), make(pq.Int64Array, len(tickets))
	for i, t := range tickets {
		tasks[i], attempts[i] = int64(t.Task), int64(t.Attempt)
	}
	return tasks, attempts
}

// numbers lists ids of any kind.
func numbers[ID ~int64](ids []ID) pq.Int64Array {
	list := make(pq.Int64Array, len(ids))
	for i, id := range ids {
		list[i] = int64(id)
	}
	return list
}

// Arrays in PostgreSQL's binary form, the one of array_recv, which neither side has to quote or to parse. lib/pq sends
// bytes as they are on connections with binary_parameters, which all of this package's have; a caller's may have not.

// The elements' types, from pg_type.
const (
	int8OID = 20
	int4OID = 23
	textOID = 25
	jsonOID = 114
)

func arrayOf(element uint32, n, bytes int) []byte {
	b := make([]byte, 0, 20+4*n+bytes)
	if n == 0 {
		b = binary.BigEndian.AppendUint32(b, 0) // dimensions
		b = binary.BigEndian.AppendUint32(b, 0)
		return binary.BigEndian.AppendUint32(b, element)
	}
	b = binary.BigEndian.AppendUint32(b, 1)
	b = binary.BigEndian.AppendUint32(b, 0) // no element is null
	b = binary.BigEndian.AppendUint32(b, element)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1) // the index of the first
}

// bigints is a bigint[] of n elements.
func bigints(n int, element func(i int) int64) []byte {
	b := arrayOf(int8OID, n, 8*n)
	for i := range n {
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(element(i)))
	}
	return b
}

// integers is an integer[] of n elements, all of which must fit.
func integers(n int, element func(i int) int) []byte {
	b := arrayOf(int4OID, n, 4*n)
	for i := range n {
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(element(i)))
	}
	return b
}

// texts is a text[] of n elements.
func texts(n int, element func(i int) string) []byte { return words(textOID, n, element) }

// jsons is a json[] of n elements.
func jsons(n int, element func(i int) []byte) []byte { return words(jsonOID, n, element) }

func words[T string | []byte](oid uint32, n int, element func(i int) T) []byte {
	size := 0
	for i := range n {
		size += len(element(i))
	}
	b := arrayOf(oid, n, size)
	for i := range n {
		text := element(i)
		b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
		b = append(b, text...)
	}
	return b
}

// nearEnough is how many ids a range scan skips at most; behind a larger gap a new range begins. To read a row and skip
// it costs a fraction of a descent of the index.
const nearEnough = 8

// near is a set of ids as sql/*_near.sql scan them, range by range. Each range has a first id, a last id, and a bit for
// each id between that says whether it is in the set. An id that is far from all others is a range of its own.
type near struct {
	firsts, lasts []int64
	starts        []int  // where a range's bits begin
	bits          []byte // of the ids of all ranges, the lowest bit of a byte first, as get_bit counts them
}

// nearby returns the ids of n different tasks as such a set.
func nearby(n int, id func(i int) int64) near {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = id(i)
	}
	slices.Sort(ids)
	var set near
	for i, id := range ids {
		if i == 0 || uint64(id)-uint64(ids[i-1]) > nearEnough+1 {
			set.begin(id)
		}
		set.add(id)
	}
	return set
}

// begin begins a range.
func (n *near) begin(first int64) {
	n.firsts, n.lasts, n.starts = append(n.firsts, first), append(n.lasts, first), append(n.starts, 8*len(n.bits))
}

// add adds an id that is near to the end of the last range to that range.
func (n *near) add(id int64) {
	last := len(n.firsts) - 1
	n.lasts[last] = id
	at := n.starts[last] + int(id-n.firsts[last])
	for at/8 >= len(n.bits) {
		n.bits = append(n.bits, 0)
	}
	n.bits[at/8] |= 1 << (at % 8)
}

// columns are the ranges as unnest joins them again.
func (n *near) columns() (firsts, lasts, starts []byte) {
	count := len(n.firsts)
	return bigints(count, func(i int) int64 { return n.firsts[i] }), bigints(count, func(i int) int64 { return n.lasts[i] }),
		integers(count, func(i int) int { return n.starts[i] })
}
