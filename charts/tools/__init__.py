"""What is made of the chart and for it: dashboards and the page of its values. Not part of the chart itself."""
