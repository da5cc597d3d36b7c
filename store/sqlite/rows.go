package sqlite

import (
	"encoding/json"
	"strconv"

	"github.com/holdfastq/holdfast/internal/message"
)

// The arguments of the statements have lists as JSON, which json_each turns into rows.

// ticketPairs returns tickets as [[task, attempt], ...].
func ticketPairs(tickets []message.Ticket) string {
	list := make([][]int64, len(tickets))
	for i, ticket := range tickets {
		list[i] = []int64{int64(ticket.Task), int64(ticket.Attempt)}
	}
	return tuples(list)
}

// tuples returns lists of numbers as JSON.
func tuples(list [][]int64) string {
	text := append(make([]byte, 0, 16*len(list)+2), '[')
	for i, tuple := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendNumbers(text, tuple)
	}
	return string(append(text, ']'))
}

// numbers returns ids of any kind as JSON.
func numbers[ID ~int64](ids []ID) string {
	return string(appendNumbers(make([]byte, 0, 12*len(ids)+2), ids))
}

func appendNumbers[N ~int64](text []byte, list []N) []byte {
	text = append(text, '[')
	for i, n := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(n), 10)
	}
	return append(text, ']')
}

// stringList returns strings of any kind as JSON.
func stringList[S ~string](list []S) string {
	if len(list) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(list) // a list of strings always encodes
	return string(text)
}
