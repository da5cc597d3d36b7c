package postgres

import "encoding/binary"

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
