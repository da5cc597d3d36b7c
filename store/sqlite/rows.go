package sqlite

import (
	"encoding/json"
	"strconv"

	"github.com/holdfastq/holdfast/internal/message"
)

// Lists travel to the statements as JSON, which json_each turns into rows.

// pairs lists tickets as [[task, attempt], ...].
func pairs(tickets []message.Ticket) string {
	list := make([][]int64, len(tickets))
	for i, ticket := range tickets {
		list[i] = []int64{int64(ticket.Task), int64(ticket.Attempt)}
	}
	return tuples(list)
}

// tuples writes lists of numbers.
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

// numbers lists ids of any kind.
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

// words lists texts of any kind.
func words[S ~string](list []S) string {
	if len(list) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(list) // of strings, which cannot fail
	return string(text)
}
