package scan

import (
	"encoding/json"

	"github.com/holdfastq/holdfast"
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

// TypeSchema is a stored schema.
type TypeSchema struct {
	Type      string
	Schema    string
	Worker    holdfast.WorkerID
	UpdatedAt Time `db:"updated_at"`
}

// TypeSchemas returns the schemas of all rows.
func TypeSchemas(rows []TypeSchema) []store.TypeSchema {
	schemas := make([]store.TypeSchema, len(rows))
	for i, row := range rows {
		schemas[i] = store.TypeSchema{Type: row.Type, Schema: json.RawMessage(row.Schema), Worker: row.Worker, UpdatedAt: row.UpdatedAt.Time}
	}
	return schemas
}
