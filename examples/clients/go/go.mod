module headrace.io/examples/records

go 1.24
