package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/holdfastq/holdfast/internal/message"

	"github.com/lib/pq"
)

// ticketColumns returns tickets as two columns, for unnest. See also binaryTickets.
func ticketColumns(tickets []message.Ticket) (tasks pq.Int64Array, attempts pq.Int64Array) {
	tasks, attempts = make(pq.Int64Array, len(tickets)), make(pq.Int64Array, len(tickets))
	for i, t := range tickets {
		tasks[i], attempts[i] = int64(t.Task), int64(t.Attempt)
	}
	return tasks, attempts
}

// numbers returns ids of any kind as an array.
func numbers[ID ~int64](ids []ID) pq.Int64Array {
	list := make(pq.Int64Array, len(ids))
	for i, id := range ids {
		list[i] = int64(id)
	}
	return list
}

// The functions below write arrays in PostgreSQL's binary form, which array_recv reads. Neither side has to quote or
// parse text. lib/pq sends byte slices unchanged on connections with binary_parameters. All connections of package
// pgclient have that setting, but a caller's connection may not.

// The types of the elements, from pg_type.
const (
	int8OID = 20
	int4OID = 23
	textOID = 25
	jsonOID = 114
)

// arrayOf returns the header of an array of n elements, with capacity for bytes bytes of elements.
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
	return binary.BigEndian.AppendUint32(b, 1) // the index of the first element
}

// bigints returns a bigint[] of n elements.
func bigints(n int, element func(i int) int64) []byte {
	b := arrayOf(int8OID, n, 8*n)
	for i := range n {
		b = binary.BigEndian.AppendUint32(b, 8)
		b = binary.BigEndian.AppendUint64(b, uint64(element(i)))
	}
	return b
}

// integers returns an integer[] of n elements. All of them must fit into 32 bits.
func integers(n int, element func(i int) int) []byte {
	b := arrayOf(int4OID, n, 4*n)
	for i := range n {
		b = binary.BigEndian.AppendUint32(b, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(element(i)))
	}
	return b
}

// texts returns a text[] of n elements.
func texts(n int, element func(i int) string) []byte { return words(textOID, n, element) }

// jsons returns a json[] of n elements.
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

// maxGap is the maximum number of missing ids between two ids of one range. Reading a row and skipping it costs a
// fraction of an index descent.
const maxGap = 8

// idRanges is a set of ids in the form of the arguments of the *_range statements. Each range has a first id, a last
// id, and one bit for each id from the first to the last. The bit says whether the id is in the set. An id far from all
// others has its own range.
type idRanges struct {
	firsts, lasts []int64
	starts        []int  // the position of the first bit of each range
	bits          []byte // bits of all ranges, starting with the lowest bit of a byte, as in get_bit
}

// idRangesOf returns the ids of n different tasks as a set.
func idRangesOf(n int, id func(i int) int64) idRanges {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = id(i)
	}
	slices.Sort(ids)
	var set idRanges
	for i, id := range ids {
		if i == 0 || uint64(id)-uint64(ids[i-1]) > maxGap+1 {
			set.begin(id)
		}
		set.add(id)
	}
	return set
}

// begin adds a range.
func (r *idRanges) begin(first int64) {
	r.firsts, r.lasts, r.starts = append(r.firsts, first), append(r.lasts, first), append(r.starts, 8*len(r.bits))
}

// add adds an id to the last range. The id must be at most maxGap+1 above the end of the range.
func (r *idRanges) add(id int64) {
	last := len(r.firsts) - 1
	r.lasts[last] = id
	at := r.starts[last] + int(id-r.firsts[last])
	for at/8 >= len(r.bits) {
		r.bits = append(r.bits, 0)
	}
	r.bits[at/8] |= 1 << (at % 8)
}

// columns returns the ranges as three columns, for unnest.
func (r *idRanges) columns() (firsts, lasts, starts []byte) {
	count := len(r.firsts)
	return bigints(count, func(i int) int64 { return r.firsts[i] }), bigints(count, func(i int) int64 { return r.lasts[i] }),
		integers(count, func(i int) int { return r.starts[i] })
}
