package scan

import (
	"encoding/json"

	"github.com/holdfastq/holdfast/store"
)

// WorkerSchemas returns the types of a worker with their schemas, as a JSON array for a statement.
func WorkerSchemas(info store.WorkerInfo) string {
	type row struct {
		Type   string  `json:"type"`
		Schema *string `json:"schema"` // text, because a database may change the form of JSON
	}
	rows := make([]row, len(info.Types))
	for i, taskType := range info.Types {
		rows[i].Type = taskType
		if schema := string(info.Schemas[taskType]); schema != "" {
			rows[i].Schema = &schema
		}
	}
	text, _ := json.Marshal(rows) // strings always marshal
	return string(text)
}
