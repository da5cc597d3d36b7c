package api

import (
	_ "embed"
	"encoding/json"
)

// example is a call of an operation, for the OpenAPI document.
type example struct {
	Request json.RawMessage `json:"request,omitempty"`
	Status  int             `json:"status"`
	Answer  json.RawMessage `json:"answer"`
}

// exampleFile has an example of each operation. TestExamples records them.
//
//go:embed examples.json
var exampleFile []byte

// recorded returns an example of each operation, by its id.
func recorded() (all map[string]example) {
	if err := json.Unmarshal(exampleFile, &all); err != nil {
		panic(err) // the file is a part of the program
	}
	return all
}
